"""A judge is believed as far as it agrees with labels that are certain."""

import asyncio
from dataclasses import dataclass, field

import numpy as np
import pytest

from ostinato.bench.judge import RUBRIC, Opinion
from ostinato.rewards.judge_client import NoVerdictError
from ostinato_lab.judges.calibrate import calibrate, kappa
from ostinato_lab.judges.pairs import shipped


@dataclass
class Judge:
    """A judge that knows the labels, likes the first place, or is silent about some pairs."""

    kind: str
    name: str = "judge"
    answers: dict[tuple[str, str], str] = field(
        default_factory=lambda: {(pair.first, pair.second): pair.better for pair in shipped()}
    )

    async def opinion(self, request: str, first: str, second: str) -> Opinion:
        await asyncio.sleep(0)
        if self.kind == "silent" and len(first) % 2:
            raise NoVerdictError("the judge is away")
        if self.kind == "place":
            return dict.fromkeys(RUBRIC, (-1.0, 1.0))
        side = {"first": -1.0, "second": 1.0, "tie": 0.0}[self.answers[first, second]]
        return dict.fromkeys(RUBRIC, (side, side))


async def test_a_judge_that_knows_agrees_in_full() -> None:
    found = await calibrate(Judge("knows"), shipped())
    assert found.whole is not None and found.whole.kappa == found.whole.low == 1.0
    assert found.answered == found.pairs and found.biased == 0.0 and found.aspects.keys() == RUBRIC.keys()


async def test_a_judge_that_likes_a_place_agrees_no_better_than_chance() -> None:
    found = await calibrate(Judge("place"), shipped())
    assert found.whole is not None and found.whole.kappa == 0.0 and found.biased == 1.0


async def test_no_verdict_is_no_vote() -> None:
    found = await calibrate(Judge("silent"), shipped())
    assert 0 < found.answered < found.pairs
    assert found.silent == {"the judge is away": found.pairs - found.answered}
    assert found.whole is not None and found.whole.kappa == 1.0


@pytest.mark.parametrize(
    ("one", "other", "value"),
    [
        ([1] * 45 + [0] * 15 + [1] * 25 + [0] * 15, [1] * 60 + [0] * 40, 0.1304),
        ([0, 0, 1, 1], [1, 1, 0, 0], -1.0),
    ],
)
def test_kappa_is_cohens(one: list[int], other: list[int], value: float) -> None:
    """The first is a table of 45, 15, 25 and 15, of which p_o is 0.60 and p_e 0.54."""
    assert kappa(np.array(one), np.array(other)) == pytest.approx(value, abs=1e-4)


def test_kappa_of_one_value_is_unknown() -> None:
    assert np.isnan(kappa(np.array([1, 1]), np.array([1, 1]))) and np.isnan(kappa(np.array([]), np.array([])))
