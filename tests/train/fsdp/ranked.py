"""A job of several ranks for tests: five steps from a checkpoint, published; rank 0 prints what came of it.

`torchrun … ranked.py START RUN OBJECTS RANKS [die|wait FOLDER|policy]`: with `die`, rank 1 is killed in the
third step; with `wait`, each rank leaves its process id in the folder and waits; with `policy`, the steps are
of the policy gradient: first they replay routes, then, on new models, the second of which trains adapters,
they are of whole groups with k1 in the reward, of which one gives no finite gradient.
"""

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from tests.train.fsdp.models import routed, rows
from tests.train.fsdp.test_model import lessons

from ostinato.store import Objects
from ostinato.train.base import NO_GRADIENT
from ostinato.train.batch import ScoredRow
from ostinato.train.config import LearnerConfig, PolicyConfig, TrainerConfig
from ostinato.train.fsdp.model import ShardedModel
from ostinato.train.fsdp.ranks import LeadingTrainer, Ranks, end_with, follow
from ostinato.train.policy import advantage_step
from ostinato.train.trainer import ChainTrainer
from ostinato.types import Group, Sample

WITH_K1 = LearnerConfig(learning_rate=1e-2, policy=PolicyConfig(k1=0.5))


def main(start: Path, run: Path, objects: str, count: int, fault: str) -> int:
    torch.set_num_threads(1)
    config = TrainerConfig(kind="fsdp", ranks=count, piece_tokens=60)
    ranks = Ranks.join(config)
    if fault == "wait":
        (Path(sys.argv[6]) / str(os.getpid())).touch()
        while True:
            time.sleep(1.0)
    model = ShardedModel(start, run, config, ranks)
    chain = ChainTrainer(model, Objects.open(objects), WITH_K1, group=ranks.group)
    if fault == "policy":
        told = [replaying(model)]
        for name, changed in (("groups", config), ("adapters", replace(config, lora_rank=4))):
            new = ShardedModel(start, run / name, changed, ranks)
            there = Objects.open(f"{objects}/{name}")
            told.append(penalised(ChainTrainer(new, there, WITH_K1, group=ranks.group)))
        if ranks.leads:
            sys.stdout.write(json.dumps(told) + "\n")
        ranks.leave()
        return 0
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
    return 0


def penalised(chain: ChainTrainer) -> list[list[float]]:
    """Take three steps on groups; return what they report, then the last scores.

    Of four groups one gives no finite gradient, and in the last step all do not.
    """
    told = []
    assert chain.resume() is None
    chain.begin(chain.publish(0))
    chain.refer(0)
    for step in range(3):
        samples = [sample(routed(row), i) for i, row in enumerate(rows(8, prefix=8, seed=step))]
        steep = [replace(each, advantage=1e38, logprobs=(-20.0,) * len(each.ids)) for each in samples]
        some = (samples, samples, steep, samples) if step < 2 else (steep,) * 4
        groups = [
            Group(id=f"g{i}", prompt=f"p{i}", samples=tuple(each[2 * i : 2 * i + 2]), rewards=(1.0, 0.0))
            for i, each in enumerate(some)
        ]
        stats = chain.step(groups, step)
        assert stats.dropped == dict.fromkeys(["g2"] if step < 2 else ["g0", "g1", "g2", "g3"], NO_GRADIENT)
        told.append([stats.loss, stats.gradient, 0.0 if stats.k1 is None else stats.k1, stats.rows])
    scores = chain.model.logprobs(rows(7))
    return [*told, torch.cat(scores).tolist()]


def replaying(model: ShardedModel) -> list[list[float]]:
    """Take three steps; return their losses, gradients and shares, then the last scores."""
    told = []
    for step in range(3):
        samples = [sample(routed(row, seed=i // 3), i) for i, row in enumerate(rows(7, prefix=8, seed=step))]
        stats = advantage_step(
            model, samples, 7, 1e-3, PolicyConfig(routes="filtered", route_margin=0.5), version=0
        )
        shares = stats.routes_recorded, stats.routes_differing, stats.routes_replaced
        told.append([stats.loss, stats.gradient, *shares])
    scores = model.logprobs([routed(row) for row in rows(7)])
    return [*told, torch.cat(scores).tolist()]


def sample(row: ScoredRow, number: int) -> Sample:
    return Sample(
        session_id=f"s{number}",
        turns=(0,),
        ids=row.ids,
        mask=row.counted,
        logprobs=tuple(-4.0 if counted else 0.0 for counted in row.counted),
        versions=(0,) * len(row.ids),
        temperatures=row.temperatures,
        advantage=(-1.0) ** number,
        routes=row.routes,
    )


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
    places = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    end_with(lambda: main(*places, (*sys.argv, "")[5]))
