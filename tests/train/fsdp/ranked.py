"""A job of several ranks for tests: five steps from a checkpoint, published; rank 0 prints what came of it.

`torchrun … ranked.py START RUN OBJECTS RANKS [die|hang]`: with `die`, rank 1 is killed in the third step.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from tests.train.fsdp.test_model import lessons

from ostinato.store import Objects
from ostinato.train.config import LearnerConfig, TrainerConfig
from ostinato.train.fsdp.model import ShardedModel
from ostinato.train.fsdp.ranks import LeadingTrainer, Ranks, follow
from ostinato.train.trainer import ChainTrainer


def main(start: Path, run: Path, objects: str, count: int, fault: str) -> None:
    torch.set_num_threads(1)
    config = TrainerConfig(kind="fsdp", ranks=count, piece_tokens=60)
    ranks = Ranks.join(config)
    model = ShardedModel(start, run, config, ranks)
    chain = ChainTrainer(model, Objects.open(objects), LearnerConfig(), group=ranks.group)
    if fault == "die" and not ranks.leads:
        step = chain.imitate
        calls = iter(range(100))

        def dying(*arguments: object) -> float:
            if next(calls) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return step(*arguments)  # type: ignore[arg-type]

        chain.imitate = dying  # type: ignore[method-assign]
    if not ranks.leads:
        follow(chain, ranks)
    else:
        lead(LeadingTrainer(chain, ranks), model)
    ranks.leave()


def lead(trainer: LeadingTrainer, model: ShardedModel) -> None:
    assert trainer.resume() is None
    trainer.publish(0)
    losses = [trainer.imitate(lessons(seed=step), 1e-3) for step in range(5)]
    trainer.save(1, {"told": "this"})
    manifest = trainer.publish(1)
    assert trainer.restore(manifest) is not None
    losses.append(trainer.imitate(lessons(seed=9), 1e-3))
    trainer.write(Path(sys.argv[2]) / "written")
    trainer.end()
    sys.stdout.write(json.dumps(losses) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), (*sys.argv, "")[5])
