"""Our side of `benchmarks.trainer`, each measurement in processes of its own. Prints one JSON line.

`python -m benchmarks.trainer_worker speed|exact|steps MODEL ROWS OUT`; `steps` runs under torchrun too.
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
from ostinato.train.config import TrainerConfig
from ostinato.train.fsdp.model import ShardedModel
from ostinato.train.fsdp.ranks import Ranks
from ostinato.train.fsdp.scoring import load_scoring
from ostinato.train.packing import pack
from ostinato.train.policy import supervised_step

CONFIG = TrainerConfig(kind="fsdp", piece_tokens=2048)
SPEED_RATE = 1e-5
STEPS, STEPS_RATE = 5, 1e-4


def lesson(ids: list[int]) -> Row:
    return Row(ids=tuple(ids), weights=(0.0,) + (1.0,) * (len(ids) - 1))


def speed(model: Path, steps: list[list[list[int]]], out: Path) -> dict[str, Any]:
    """Return tokens a second after the first step, and the process's peak memory."""
    trained = ShardedModel(model, out, CONFIG, Ranks(rank=0, size=1))
    ends = list[float]()
    for rows in steps:
        supervised_step(trained, [lesson(ids) for ids in rows], SPEED_RATE)
        ends.append(time.perf_counter())
    tokens = sum(len(ids) for rows in steps[1:] for ids in rows)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"tokens_s": tokens / (ends[-1] - ends[0]), "peak_mb": peak, "steps": len(steps) - 1}


@torch.no_grad()
def exact(model: Path, steps: list[list[list[int]]], _: Path) -> dict[str, Any]:
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


def steps_of(model: Path, steps: list[list[list[int]]], out: Path) -> dict[str, Any]:
    """Take `STEPS` steps, write the weights to OUT/written, and return the losses."""
    ranks = Ranks.join(CONFIG)
    trained = ShardedModel(model, out, CONFIG, ranks)
    rows = [lesson(ids) for ids in steps[0]]
    losses = [supervised_step(trained, rows, STEPS_RATE) for _ in range(STEPS)]
    trained.write(out / "written")
    ranks.leave()
    return {"losses": losses} if ranks.leads else {}


def main(what: str, model: Path, rows: Path, out: Path) -> None:
    torch.set_num_threads(1)
    work = {"speed": speed, "exact": exact, "steps": steps_of}[what]
    if result := work(model, json.loads(rows.read_text()), out):
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
