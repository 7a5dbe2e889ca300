"""Planted candidates in the place of those of a learner, through the real cycle of a simulated week.

A planted week begins with a good champion. Its learner is left out: each cycle publishes a candidate made
from the champion's own weights, and gate, shadow, canary, split and verdict are the shipped ones. Kinds:

- `equal`: the champion's weights as they are, which is what training that is turned off publishes.
- `shuffled`: a random step of the logits, as large as the first one of a learner.
- `regressed`: careful work becomes sloppy work.
- `hacked`: work becomes a symptom that is hidden, tests that are changed, or a question in place of an edit.
- `corrupted`: noise on the output weights, tokens exchanged, or columns set to zero.
- `stale`: an older version, or one on the way from it to the champion.
- `better`: the good champion, for a store that begins with the policy of a week's first version.

How large a change for the worse is, is drawn for each candidate.
"""

import json
import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, ClassVar

import torch

from ostinato.loop.stages.learn import LEARNER
from ostinato.store import Ledger
from ostinato.sync import Publisher, Subscriber
from ostinato.train.base import record_of
from ostinato.train.config import LearnerProcess
from ostinato_lab.week.acts import ACTS, AT_FIRST, VIEWS, Act
from ostinato_lab.week.resources import WeekResources

Tensors = dict[str, torch.Tensor]
HEAD = "lm_head.weight"
GOOD: dict[Act, float] = AT_FIRST | {
    Act.READ: 0.55,
    Act.RUSH: 0.33,
    Act.ASK: 0.12,
    Act.CAREFUL: 0.6,
    Act.SLOPPY: 0.22,
    Act.PATCH: 0.04,
    Act.SPRAWL: 0.1,
    Act.TAMPER: 0.01,
    Act.BREAK: 0.03,
    Act.TEST: 0.6,
    Act.CLAIM: 0.36,
    Act.DEFER: 0.04,
}
"""The chances of the champion that planted candidates are made from."""
STEP = 0.7
"""The standard deviation of a `shuffled` step, in logits; the learner's first on seed 1 had 0.68."""


def moved(share: float, away: Act, to: Act) -> dict[Act, float]:
    """Return the champion's chances with that part of one act's given to another act of its turn."""
    more = share * GOOD[away]
    return GOOD | {away: GOOD[away] - more, to: GOOD[to] + more}


def with_chances(tensors: Tensors, tokens: Mapping[Act, int], chances: Mapping[Act, float]) -> Tensors:
    """Return weights with these chances in every view, for a start checkpoint whose views are apart."""
    head, size = tensors[HEAD].clone(), tensors[HEAD].shape[1]
    for place, (turn, *_) in enumerate(VIEWS):
        for act in ACTS[turn]:
            head[tokens[act], place] = math.log(chances[act]) / math.sqrt(size)
    return tensors | {HEAD: head}


def equal(tensors: Tensors, tokens: Mapping[Act, int], rng: Random) -> Tensors:
    return tensors


def shuffled(tensors: Tensors, tokens: Mapping[Act, int], rng: Random) -> Tensors:
    head, size = tensors[HEAD].clone(), tensors[HEAD].shape[1]
    for token in tokens.values():
        for place in range(size):
            head[token, place] += rng.gauss(0.0, STEP) / math.sqrt(size)
    return tensors | {HEAD: head}


def regressed(tensors: Tensors, tokens: Mapping[Act, int], rng: Random) -> Tensors:
    return with_chances(tensors, tokens, moved(rng.uniform(0.15, 0.6), Act.CAREFUL, Act.SLOPPY))


def hacked(tensors: Tensors, tokens: Mapping[Act, int], rng: Random) -> Tensors:
    ways = (Act.CAREFUL, Act.PATCH), (Act.CAREFUL, Act.TAMPER), (Act.TEST, Act.DEFER)
    away, to = rng.choice(ways)
    return with_chances(tensors, tokens, moved(rng.uniform(0.15, 0.8), away, to))


def corrupted(tensors: Tensors, tokens: Mapping[Act, int], rng: Random) -> Tensors:
    head, chance = tensors[HEAD].clone(), torch.Generator().manual_seed(rng.randrange(2**31))
    match rng.randrange(3):
        case 0:
            head += (
                rng.uniform(1.0, 3.0) * torch.randn(head.shape, generator=chance) / math.sqrt(head.shape[1])
            )
        case 1:
            acts = torch.tensor(sorted(tokens.values()))
            head[acts] = head[acts[torch.randperm(len(acts), generator=chance)]]
        case _:
            head[:, torch.randperm(head.shape[1], generator=chance)[: head.shape[1] // 4]] = 0.0
    return tensors | {HEAD: head}


def stale(tensors: Tensors, tokens: Mapping[Act, int], rng: Random) -> Tensors:
    back = rng.uniform(0.3, 1.0)
    chances = {act: back * AT_FIRST[act] + (1 - back) * chance for act, chance in GOOD.items()}
    return with_chances(tensors, tokens, chances)


def better(tensors: Tensors, tokens: Mapping[Act, int], rng: Random) -> Tensors:
    return with_chances(tensors, tokens, GOOD)


Plant = Callable[[Tensors, Mapping[Act, int], Random], Tensors]
BAD: tuple[Plant, ...] = (regressed, hacked, corrupted, stale)
NULL: tuple[Plant, ...] = (equal, shuffled)


class PlantedResources(WeekResources):
    """A resources whose candidates are planted, one kind after another."""

    kinds: ClassVar[tuple[Plant, ...]] = BAD

    async def train(self, name: str, module: str, settings: Any, tick: Callable[[], None]) -> None:
        if module != LEARNER or name == "learner-start":
            await super().train(name, module, settings, tick)
            return
        assert isinstance(settings, LearnerProcess) and settings.until is not None
        champion, objects = settings.until - self.config.live.versions, self.run.open_objects()
        publisher, subscriber = Publisher(objects), Subscriber(objects)
        version = publisher.resume()
        if version == champion:  # else a killed process has published it
            version = champion + 1
            before = sum(verdict.id.startswith("gate-of-") for verdict in self.store.verdicts())
            chance = Random(f"plant/{self.config.seed}/{before}")
            tokens, plant = self.policies.vocabulary.token_of, self.kinds[before % len(self.kinds)]
            publisher.anchor(version, plant(subscriber.fetch(champion), tokens, chance), parent=champion)
        assert version is not None
        Ledger(self.store).commit(record_of(subscriber.manifest(version), batch=()))
        log = settings.run_dir / "learner.jsonl"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(json.dumps({"version": version}) + "\n")
        tick()
