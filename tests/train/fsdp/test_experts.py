"""Models whose experts transformers fuses are trained, published and replayed."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.train.fsdp.models import CHOSEN, EXPERTS, ROUTED, SIZES, SOME, checkpoint, routed, rows
from tests.train.fsdp.test_model import lessons, model, served
from transformers import AutoModelForCausalLM, Glm4MoeConfig, MixtralConfig

from ostinato.model.checkpoint import load
from ostinato.model.replay import ReplayCounts, RouterShape
from ostinato.model.tensor_files import CheckpointError, TensorFiles
from ostinato.store import Objects
from ostinato.sync import Subscriber
from ostinato.train.base import StateError
from ostinato.train.batch import ScoredRow
from ostinato.train.config import LearnerConfig
from ostinato.train.fsdp.experts import separated
from ostinato.train.fsdp.model import ShardedModel
from ostinato.train.local import DecoderModel
from ostinato.train.policy import supervised_step
from ostinato.train.trainer import ChainTrainer
from ostinato.types import Routes

SHAPE = RouterShape(layers=SIZES["num_hidden_layers"], experts=EXPERTS, per_token=CHOSEN)


@pytest.fixture(params=ROUTED)
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "start", ROUTED[request.param])


def test_fused_experts_are_trained_as_in_a_plain_loop(start: Path) -> None:
    trained = model(start)
    plain = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(3):
        batch = lessons(seed=step)
        total = sum(weight for row in batch for weight in row.counted_weights)
        loss = torch.zeros(())
        for row in batch:
            ids = torch.tensor(row.ids)
            logprobs = torch.log_softmax(plain(input_ids=ids[None]).logits[0, :-1], -1)
            loss = (
                loss - (logprobs.gather(1, ids[1:, None])[:, 0] * torch.tensor(row.weights[1:])).sum() / total
            )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        assert supervised_step(trained, batch, 1e-3) == pytest.approx(loss.item(), rel=1e-5)
    weights = {n: t for fused, p in plain.named_parameters() for n, t in separated(fused, p.detach())}
    for name, tensor in served(trained).items():
        torch.testing.assert_close(tensor, weights[name], rtol=0, atol=1e-4)


def test_fused_experts_are_published_under_the_names_of_the_checkpoint(start: Path) -> None:
    objects, trained = Objects.open(start.parent / "objects"), model(start)
    trainer = ChainTrainer(trained, objects, LearnerConfig())
    trainer.publish(0)
    trainer.imitate(lessons(), 1e-2)
    manifest = trainer.publish(1)
    fetched = Subscriber(objects).fetch(1)
    assert fetched.keys() == set(TensorFiles.open(start).entries)
    other = model(start, "other")
    ChainTrainer(other, objects, LearnerConfig()).begin(manifest)
    for name, tensor in served(other).items():
        assert torch.equal(tensor, fetched[name]) and torch.equal(tensor, served(trained)[name])
    trained.write(start.parent / "written")
    shutil.copy(start / "config.json", start.parent / "written")
    for name, tensor in served(model(start.parent / "written", "third")).items():
        assert torch.equal(tensor, fetched[name])
    with pytest.raises(StateError, match=r"experts\.3\.down_proj\.weight is published with shape \[1\]"):
        other.load({name: t if "3.down" not in name else torch.zeros(1) for name, t in fetched.items()})


def scores_and_gradients(
    trained: ShardedModel, batch: list[ScoredRow]
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    scores = trained.logprobs(batch)
    trained.optimizer.zero_grad()
    trained.accumulate(batch, lambda _, scores: scores.logprobs_N.sum())
    gradients = {name: parameter.grad for name, parameter in trained._trained.items()}
    return scores, {name: gradient.clone() for name, gradient in gradients.items() if gradient is not None}


def own_routes(trained: ShardedModel, row: ScoredRow) -> Routes:
    """The experts that the model chooses itself for the tokens of a row."""
    seen: list[torch.Tensor] = []
    layers: Any = trained._scoring.model.model.layers  # type: ignore[union-attr]
    hooks = [layer.mlp.gate.register_forward_hook(lambda *call: seen.append(call[2][2])) for layer in layers]
    trained.logprobs([row])
    for hook in hooks:
        hook.remove()
    chosen = torch.stack(seen, 1).flatten(1).to(torch.uint16)
    return Routes(data=chosen.numpy().astype("<u2").tobytes(), width=SHAPE.width)


def test_a_models_own_routes_change_nothing_to_the_bit(start: Path) -> None:
    trained = model(start)
    assert trained.router == SHAPE
    (row,) = rows(1, prefix=9)
    free = scores_and_gradients(trained, [row])
    assert trained.replayed() == ReplayCounts()
    replayed = scores_and_gradients(trained, [replace(row, routes=own_routes(trained, row))])
    assert torch.equal(free[0][0], replayed[0][0])
    assert all(torch.equal(gradient, replayed[1][name]) for name, gradient in free[1].items())
    counts = trained.replayed()
    assert counts.recorded == counts.choices == (len(row.ids) - 1) * SHAPE.width and counts.differing == 0


@pytest.mark.parametrize(
    "settings", [{"recompute": True}, {"piece_tokens": 30}, {"lora_rank": 4, "recompute": True}]
)
def test_routes_are_replayed_again_where_activations_are_computed_again(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    start = checkpoint(tmp_path / "start", ROUTED["qwen3_moe"])
    batch = [routed(row, seed=i // 3) for i, row in enumerate(rows(6, prefix=9))]
    trained = model(start, **settings)
    plain = model(start, "plain", lora_rank=settings.get("lora_rank", 0))
    scores, gradients = scores_and_gradients(trained, batch)
    expected, theirs = scores_and_gradients(plain, batch)
    for mine, other in zip(scores, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-5)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, theirs[name], rtol=1e-3, atol=1e-4)
    assert trained.replayed().recorded > 0


def test_both_trainers_replay_alike(tmp_path: Path) -> None:
    start = checkpoint(tmp_path / "start", ROUTED["qwen3_moe"])
    sharded, local = model(start), DecoderModel(load(start)[0], tmp_path / "local")
    batch = [routed(row, seed=i) for i, row in enumerate(rows(6))]
    own = sharded.logprobs(rows(6))
    for mine, theirs, free in zip(sharded.logprobs(batch), local.logprobs(batch), own, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)
        assert not torch.allclose(mine, free, rtol=0, atol=1e-3)
    for trained in (sharded, local):
        trained.accumulate(batch, lambda _, scores: scores.logprobs_N.sum())
    assert local.replayed() == sharded.replayed()
    gates: Any = {name: p.grad for name, p in sharded._trained.items() if name.endswith("gate.weight")}
    for i, layer in enumerate(local.decoder.layers):
        router: Any = layer.mlp.router.grad  # type: ignore[union-attr]
        torch.testing.assert_close(
            router, gates[f"model.model.layers.{i}.mlp.gate.weight"], rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize(
    "config",
    [
        MixtralConfig(**SOME, num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
        Glm4MoeConfig(**SOME, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16),
    ],
    ids=["mixtral", "glm4_moe"],
)
def test_experts_under_names_that_are_not_known_are_refused(tmp_path: Path, config: Any) -> None:
    with pytest.raises(CheckpointError, match="not of both"):
        model(checkpoint(tmp_path / "start", config))
