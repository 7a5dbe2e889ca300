"""The difference between what an engine recorded and what a trainer computes, with and without router replay.

    python -m benchmarks.mismatch [--json] [--sessions 64] [--gaps 0 1 4 16]

An embedded engine samples sessions of two turns with random weights and a mixture of experts. Both trainers
then score the recorded tokens, with the weights that sampled them (gap 0) and with those of later steps, and
|log pi - log mu| of every sampled token is counted in nats. Rounding or noise decides between experts:

- none: the trainer's own float32 against the engine's, which sums in another order.
- bf16: the inputs of the layers of experts are rounded to bfloat16.
- noise: independent Gaussian noise of standard deviation `--noise` on every logit of the router.

`own` is without replay, `replay` takes all recorded experts, `filtered` those within each of `--margins` of
the trainer's own choice, in logits. `cut` is the p99 without replay over the p99 with it. Its interval
resamples sessions (percentile bootstrap, 95 %).
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.measure import Run, table
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.tensor_files import CONFIG, write_tensors
from ostinato.store.sql.row_conversion import pack_routes
from ostinato.train.base import Trainable
from ostinato.train.config import PolicyConfig, TrainerConfig
from ostinato.train.fsdp.model import ShardedModel
from ostinato.train.fsdp.ranks import Ranks
from ostinato.train.local import DecoderModel
from ostinato.train.policy import advantage_step, rows_of
from ostinato.train.samples import samples_of
from ostinato.types import GenerateRequest, Sample, Sampling, Turn

SHAPE = ModelConfig(
    vocab_size=512, hidden_size=96, layers=3, experts=8, experts_per_token=2, expert_size=96, tied=False
)
PROMPT, SAMPLED, ANSWER = 32, 40, 12
"""Tokens of a prompt, of a turn, and of what comes between two turns."""
RATE = 2e-5
"""A rate at which one step moves these untrained weights by about as much as a step moves a trained model."""
RESAMPLES = 300
HEADER = (
    *("trainer gap disturbance", "own p50", "p99", "max", "replay p50", "p99", "max", "differ %"),
    *("cut of p99", "filtered, by margin: p50 p99 (replaced)"),
)
Deltas = list[NDArray[np.float64]]
"""log pi - log mu of the sampled tokens of each session."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table, and with --json one line."""
    options = _options(arguments)
    torch.set_num_threads(1)
    with Run("mismatch", "torch", "transformers") as run, tempfile.TemporaryDirectory() as folder:
        decoder = random_decoder()
        samples = asyncio.run(sampled(decoder, options.sessions))
        rows = list(measured(decoder, samples, Path(folder), options))
        table(
            HEADER,
            [_line(row) for row in rows],
        )
        run.finish(_figures(samples, rows), as_json=options.json)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mismatch", description=__doc__)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--gaps", type=int, nargs="+", default=[0, 1, 4, 16])
    parser.add_argument("--noise", type=float, default=0.01)
    parser.add_argument("--margins", type=float, nargs="+", default=[0.02, PolicyConfig().route_margin])
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def random_decoder() -> Decoder:
    """Return a decoder with random weights in which every layer matters: fresh ones begin as the identity."""
    torch.manual_seed(0)
    decoder = Decoder(SHAPE)
    with torch.no_grad():
        for layer in decoder.layers:
            for part in (layer.attention.out, layer.mlp.down):  # type: ignore[union-attr]
                part.normal_(std=0.5 * part.shape[-1] ** -0.5)  # type: ignore[operator, union-attr, index]
        decoder.norm.weight.fill_(1.0)
        decoder.unembedding.normal_(std=2.0 * SHAPE.hidden_size**-0.5)
    return decoder


async def sampled(decoder: Decoder, sessions: int) -> list[Sample]:
    """Return the samples of sessions of two turns, of random advantages."""
    engine = EmbeddedEngine(decoder, version=0, slots=32, max_len=2 * (PROMPT + SAMPLED + ANSWER))
    rng = np.random.default_rng(0)
    made = await asyncio.gather(*(session(engine, f"s{i}", rng.spawn(1)[0]) for i in range(sessions)))
    return [sample for turns in made for sample in samples_of(turns, float(rng.choice((-1.0, 1.0))))]


async def session(engine: EmbeddedEngine, name: str, rng: np.random.Generator) -> list[Turn]:
    turns: list[Turn] = []
    history = tuple(rng.integers(4, SHAPE.vocab_size, PROMPT).tolist())
    for index in range(2):
        request = GenerateRequest(
            request_id=f"{name}/{index}",
            session_id=name,
            prompt_ids=history,
            stop_ids=(),
            max_tokens=SAMPLED,
            sampling=Sampling(seed=int(rng.integers(2**31))),
        )
        completion = await engine.generate(request)
        turns.append(
            Turn(
                session_id=name,
                index=index,
                segment=0,
                arm="main",
                prompt_ids=history,
                completion=completion,
                started_at=0.0,
                latency_s=0.0,
            )
        )
        history += completion.ids + tuple(rng.integers(4, SHAPE.vocab_size, ANSWER).tolist())
    return turns


def measured(
    decoder: Decoder, samples: Sequence[Sample], folder: Path, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Yield a row for each trainer, gap and disturbance; the steps between the gaps are those of `local`."""
    local = DecoderModel(decoder, folder / "local")
    for gap in sorted(options.gaps):
        while local.steps < gap:
            advantage_step(local, samples, len(samples), RATE, PolicyConfig(), version=0)
        for name, trainer in (("local", local), ("fsdp", as_sharded(decoder, folder / f"fsdp{gap}"))):
            for disturbance in ("none", "bf16", "noise"):
                yield {"trainer": name, "gap": gap, "disturbance": disturbance} | compared(
                    trainer, samples, disturbance, options
                )


def as_sharded(decoder: Decoder, folder: Path) -> ShardedModel:
    (folder / "start").mkdir(parents=True)
    write_tensors(folder / "start", decoder.state_dict().items())
    (folder / "start" / CONFIG).write_text(json.dumps(decoder.config.to_hf()))
    return ShardedModel(folder / "start", folder, TrainerConfig(kind="fsdp"), Ranks(rank=0, size=1))


def compared(
    trainer: DecoderModel | ShardedModel,
    samples: Sequence[Sample],
    disturbance: str,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Return the quantiles of |log pi - log mu| without replay, with it, and with the filter."""
    config = {
        "own": PolicyConfig(routes="own"),
        "replay": PolicyConfig(),
    } | {filtered(margin): PolicyConfig(routes="filtered", route_margin=margin) for margin in options.margins}
    row, deltas = dict[str, Any](), dict[str, Deltas]()
    for mode, policy in config.items():
        with disturbed(trainer, disturbance, options.noise):
            deltas[mode] = differences(trainer, samples, policy)
            every = np.concatenate(deltas[mode])
            row[mode] = {
                "p50": float(np.quantile(every, 0.5)),
                "p99": float(np.quantile(every, 0.99)),
                "max": float(every.max()),
            }
        with disturbed(trainer, disturbance, options.noise):
            row[mode] |= shares(trainer, samples, policy)
    for mode in config:
        row[mode]["cut"] = cut(deltas["own"], deltas[mode])
    return row


def filtered(margin: float) -> str:
    """Return the name of the mode that takes the recorded experts within a margin."""
    return f"filtered {margin:g}"


def differences(trainer: Trainable, samples: Sequence[Sample], policy: PolicyConfig) -> Deltas:
    rows = rows_of(trainer, samples, policy)
    scores = trainer.logprobs(rows)
    recorded = [[p for p, said in zip(each.logprobs, each.mask, strict=True) if said] for each in samples]
    return [np.abs(s.double().numpy() - np.array(r)) for s, r in zip(scores, recorded, strict=True)]


def shares(trainer: Trainable, samples: Sequence[Sample], policy: PolicyConfig) -> dict[str, float]:
    """Return what became of the routes; a loss of nothing, since only a pass for a gradient counts them."""
    rows = rows_of(trainer, samples, policy)
    trainer.accumulate(rows, lambda _, scores: scores.logprobs_N.sum() * 0.0)
    return trainer.replayed().shares


def cut(without: Deltas, with_replay: Deltas) -> list[float]:
    """Return the ratio of the p99 of both, and its interval over resampled sessions."""
    rng, found = np.random.default_rng(0), list[float]()
    for i in range(RESAMPLES + 1):
        some = rng.integers(len(without), size=len(without)) if i else range(len(without))
        above, below = (np.concatenate([deltas[j] for j in some]) for deltas in (without, with_replay))
        found.append(float(np.quantile(above, 0.99) / max(np.quantile(below, 0.99), 1e-12)))
    return [found[0], *np.quantile(found[1:], (0.025, 0.975)).tolist()]


@contextmanager
def disturbed(trainer: DecoderModel | ShardedModel, kind: str, noise: float) -> Iterator[None]:
    """Disturb the layers of experts inside the block, by the same random numbers each time."""
    random = torch.Generator().manual_seed(1)
    with ExitStack() as hooks:
        for layer in _layers(trainer):
            if kind == "bf16":
                hooks.callback(layer.mlp.register_forward_pre_hook(_rounded).remove)
            elif kind == "noise" and isinstance(trainer, DecoderModel):
                plain = layer.mlp.logits
                layer.mlp.logits = _noisy(plain, random, noise)
                hooks.callback(delattr, layer.mlp, "logits")
            elif kind == "noise":
                hook = _noisy_router(random, noise, bool(layer.mlp.gate.norm_topk_prob))
                hooks.callback(layer.mlp.gate.register_forward_hook(hook, prepend=True).remove)
        yield


def _layers(trainer: DecoderModel | ShardedModel) -> list[Any]:
    if isinstance(trainer, DecoderModel):
        return list(trainer.decoder.layers)
    model: Any = trainer._scoring.model
    return list(model.get_decoder().layers)


def _rounded(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return (arguments[0].bfloat16().float(), *arguments[1:])


def _noisy(
    plain: Callable[[Tensor], Tensor], random: torch.Generator, noise: float
) -> Callable[[Tensor], Tensor]:
    def logits(x: Tensor) -> Tensor:
        made = plain(x)
        return made + noise * torch.randn(made.shape, generator=random)

    return logits


def _noisy_router(random: torch.Generator, noise: float, normalised: bool) -> Callable[..., Any]:
    def hook(_: nn.Module, __: Any, output: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        logits = output[0] + noise * torch.randn(output[0].shape, generator=random)
        scores, chosen = torch.softmax(logits, -1).topk(output[2].shape[1], -1)
        return logits, scores / scores.sum(-1, keepdim=True) if normalised else scores, chosen

    return hook


def _line(row: dict[str, Any]) -> list[str]:
    own, replay = row["own"], row["replay"]
    numbers = [side[name] for side in (own, replay) for name in ("p50", "p99", "max")]
    by_margin = [
        f"{mode.removeprefix('filtered ')}: {side['p50']:.2g} {side['p99']:.2g}"
        f" ({100 * side['routes_replaced']:.3f} %)"
        for mode, side in row.items()
        if mode.startswith("filtered ")
    ]
    value, low, high = replay["cut"]
    return [
        f"{row['trainer']} {row['gap']} {row['disturbance']}",
        *(f"{number:.2g}" for number in numbers),
        f"{100 * replay['routes_differing']:.2f}",
        f"{value:.1f} [{low:.1f}, {high:.1f}]",
        "; ".join(by_margin),
    ]


def _figures(samples: Sequence[Sample], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first = min(row["gap"] for row in rows)
    quiet = [row for row in rows if row["gap"] == first and row["disturbance"] == "none"]
    loud = [row for row in rows if row["gap"] == first and row["disturbance"] != "none"]
    return {
        "parameters": SHAPE.parameters,
        "sessions": len(samples),
        "tokens": sum(sum(sample.mask) for sample in samples),
        "route_bytes": sum(
            2 * sample.routes.width * sample.routes.tokens for sample in samples if sample.routes
        ),
        "route_bytes_stored": sum(len(pack_routes(sample.routes) or b"") for sample in samples),
        "gap0_max": max(row["replay"]["max"] for row in quiet),
        "gap0_max_own": max(row["own"]["max"] for row in quiet),
        "cut_p99": min(row["replay"]["cut"][0] for row in loud),
        "rows": list(rows),
    }


if __name__ == "__main__":
    main()
