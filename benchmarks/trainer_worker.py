"""Our side of `benchmarks.trainer`, each measurement in processes of its own. Prints one JSON line.

`python -m benchmarks.trainer_worker speed|exact|steps|rounded MODEL ROWS OUT [bfloat16]`; `steps` runs under
torchrun too. All but `exact` compute on the GPU where there is one.
"""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM

from ostinato.train.batch import Row
from ostinato.train.config import Dtype, TrainerConfig
from ostinato.train.fsdp.model import DTYPES, ShardedModel
from ostinato.train.fsdp.ranks import Ranks
from ostinato.train.fsdp.scoring import load_scoring, plain_logprobs
from ostinato.train.packing import pack
from ostinato.train.policy import supervised_step

SPEED_RATE = 1e-5
STEPS, STEPS_RATE = 5, 1e-4


def lesson(ids: list[int]) -> Row:
    return Row(ids=tuple(ids), weights=(0.0,) + (1.0,) * (len(ids) - 1))


def speed(model: Path, steps: list[list[list[int]]], out: Path, config: TrainerConfig) -> dict[str, Any]:
    """Return tokens a second after the first step, and the peak memory: the GPU's where there is one."""
    ranks = Ranks.join(config)
    trained = ShardedModel(model, out, config, ranks)
    ends = list[float]()
    for rows in steps:
        supervised_step(trained, [lesson(ids) for ids in rows], SPEED_RATE)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        ends.append(time.perf_counter())
    ranks.leave()
    tokens = sum(len(ids) for rows in steps[1:] for ids in rows)
    return {"tokens_s": tokens / (ends[-1] - ends[0]), "peak_mb": peak_mb(), "steps": len(steps) - 1}


def peak_mb() -> float:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@torch.no_grad()
def rounded(model: Path, steps: list[list[list[int]]], out: Path, config: TrainerConfig) -> dict[str, Any]:
    """Return how far scores in this type are from those of transformers in float32, ours and its own."""
    ranks = Ranks.join(config)
    rows = [lesson(ids).scored for ids in steps[0]]
    ours = torch.cat(ShardedModel(model, out, config, ranks).logprobs(rows))
    scores = {}
    for dtype in (torch.float32, DTYPES[config.compute]):
        plain = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).to(ranks.device)
        with ranks.device:
            scores[dtype] = plain_logprobs(plain, rows).cpu()
    ranks.leave()
    apart = {
        "rounded": ours - scores[torch.float32],
        "rounded_transformers": scores[DTYPES[config.compute]] - scores[torch.float32],
    }
    return {f"{name}_p99": float(each.abs().quantile(0.99)) for name, each in apart.items()}


@torch.no_grad()
def exact(model: Path, steps: list[list[list[int]]], _: Path, __: TrainerConfig) -> dict[str, Any]:
    """Return the largest differences of packed logits, and of packed scores, from those of padded rows."""
    rows = [torch.tensor(ids) for ids in steps[0]]
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    padded = pad_sequence(rows, batch_first=True)
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    logits = plain(input_ids=padded, attention_mask=mask, use_cache=False).logits
    expected = torch.cat([logits[i, : len(row) - 1] for i, row in enumerate(rows)])
    together = pack([lesson(row.tolist()).scored for row in rows])
    scoring = load_scoring(model)
    causal = cast(Any, scoring.model)
    hidden: Tensor = causal.get_decoder()(
        input_ids=together.ids_T[None],
        position_ids=together.positions_T[None],
        use_cache=False,
        pack=together,
    ).last_hidden_state[0]
    ours = causal.get_output_embeddings()(hidden[together.sources_N])
    targets = torch.cat([row[1:] for row in rows])
    scores = torch.log_softmax(expected, -1).gather(1, targets[:, None])[:, 0]
    return {
        "logits_max": float((ours - expected).abs().max()),
        "packed": float((scoring(together).logprobs_N - scores).abs().max()),
    }


def steps_of(model: Path, steps: list[list[list[int]]], out: Path, config: TrainerConfig) -> dict[str, Any]:
    """Take `STEPS` steps, write the weights to OUT/written, and return the losses."""
    ranks = Ranks.join(config)
    trained = ShardedModel(model, out, config, ranks)
    rows = [lesson(ids) for ids in steps[0]]
    losses = [supervised_step(trained, rows, STEPS_RATE) for _ in range(STEPS)]
    trained.write(out / "written")
    ranks.leave()
    return {"losses": losses} if ranks.leads else {}


def main(what: str, model: Path, rows: Path, out: Path, compute: Dtype = "float32") -> None:
    torch.set_num_threads(1)
    work = {"speed": speed, "exact": exact, "steps": steps_of, "rounded": rounded}[what]
    steps = json.loads(rows.read_text())
    most = max(sum(map(len, rows)) for rows in steps)
    config = TrainerConfig(kind="fsdp", piece_tokens=most, compute=compute)
    if result := work(model, steps, out, config):
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    what, *paths = sys.argv[1:5]
    main(what, *map(Path, paths), *sys.argv[5:])  # type: ignore[arg-type]
