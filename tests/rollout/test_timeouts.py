"""A session that exceeds its time: whose fault it was, and what the gradient on hanging is."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from fuzz.practice import NumberRunner, problem
from hypothesis import given
from hypothesis import strategies as st

from ostinato.harness.conversation import Outcome
from ostinato.harness.episode import Episode, verified
from ostinato.rollout.config import PracticeConfig
from ostinato.rollout.sampling import SlotWork
from ostinato.rollout.timeouts import MOST_LOAD, MOST_SLOWNESS, Evidence, Examiner
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.base import SandboxError, Spec
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.store import Store
from ostinato.train.objective.group import baseline_of
from ostinato.types import Ending, SignalKind, Task

TWO_TURNS = 0
"""A seed whose session has two turns."""
HEALTHY = Evidence(turns=2, engine=True, sandbox="", load=1.0, slowness=1.0)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, ""),
        ({"turns": 0}, "no turn of it was recorded"),
        ({"engine": False}, "the engine does not answer"),
        ({"sandbox": "no namespaces"}, "a sandbox that was tried failed: no namespaces"),
        ({"load": 2 * MOST_LOAD}, "overloaded: 20.0 processes for each core"),
        ({"slowness": 2 * MOST_SLOWNESS}, "6.0 times as long for a token"),
    ],
)
def test_our_side_is_at_fault_where_one_part_of_it_was(change: dict[str, Any], fault: str) -> None:
    assert fault in replace(HEALTHY, **change).fault and bool(fault) == bool(replace(HEALTHY, **change).fault)


class Hanging(NumberRunner):
    """Sessions that take a first turn, and then hang in a command of their own; verified as real ones."""

    def __init__(self, store: Store, backend: ProcessBackend, turns: int) -> None:
        super().__init__(store, version=lambda: 0, wait=self._hang)
        self._verifier = Verifier(backend)
        self._left = turns

    async def _hang(self, _: object) -> None:
        self._left -= 1
        if self._left < 0:
            await asyncio.Event().wait()

    async def verify(self, task: Task, outcome: Outcome, changes: Any) -> Episode:
        return await verified(self._verifier, task, outcome, changes)


class NoSandbox(ProcessBackend):
    """A backend that can create no sandbox."""

    async def create(self, spec: Spec) -> Any:
        raise SandboxError("no more namespaces")


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    """A task with an empty repository, on a machine that has nothing else to do."""
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    (tmp_path / "environment" / "repo").mkdir(parents=True)
    return replace(problem(0).provide(tmp_path), directory=tmp_path)


@pytest.mark.parametrize(
    "case",
    [
        (1, 3, ProcessBackend, None),
        (0, 3, ProcessBackend, "no turn of it was recorded"),
        (1, None, ProcessBackend, "the engine does not answer"),
        (1, 3, NoSandbox, "no more namespaces"),
    ],
)
async def test_a_hanging_session_is_unsolved_unless_our_side_was_at_fault(
    store: Store, task: Task, case: tuple[int, int | None, type[ProcessBackend], str | None]
) -> None:
    turns, served, backend, void = case

    async def answers() -> int | None:
        return served

    sandboxes, id = backend(), "a" * 32
    runner = Hanging(store, sandboxes, turns)
    config = PracticeConfig(session_s=0.5)  # the first turn is recorded at once, the second never comes
    work = SlotWork(runner, config, Examiner(store, sandboxes, answers))
    (episode,) = await work.verify(task, await work.sample(task, id, TWO_TURNS))
    if void is not None:
        assert episode.void is not None and void in episode.void and not episode.signals()
        return
    assert (episode.void, episode.solved) == (None, False)
    assert (episode.outcome.ending, episode.outcome.turns) == (Ending.TURN_LIMIT, 1)
    session = store.session(id)
    assert session is not None and session.ending is Ending.TURN_LIMIT
    assert SignalKind.HIDDEN_TESTS in {signal.kind for signal in episode.signals()}


def gradient(logits: Sequence[float], rewards: Sequence[float], size: int, *, void: bool) -> list[float]:
    """Return the expected gradient of a group over all of its outcomes, exactly.

    A session does one act, drawn by the softmax of `logits`; act 0 hangs. With `void` those that hang leave
    the group, as they did where they were taken for a failure of ours.
    """
    total = sum(map(math.exp, logits))
    chances = [math.exp(logit) / total for logit in logits]
    summed = [0.0] * len(logits)
    for acts in product(range(len(logits)), repeat=size):
        chance = math.prod(chances[act] for act in acts)
        kept = [act for act in acts if act or not void]
        advantages = baseline_of("others")([rewards[act] for act in kept])
        for act, advantage in zip(kept, advantages, strict=True):
            for i, own in enumerate(chances):
                summed[i] += chance * advantage * ((act == i) - own) / len(kept)
    return summed


def true_gradient(logits: Sequence[float], rewards: Sequence[float]) -> list[float]:
    total = sum(map(math.exp, logits))
    chances = [math.exp(logit) / total for logit in logits]
    mean = sum(chance * reward for chance, reward in zip(chances, rewards, strict=True))
    return [chance * (reward - mean) for chance, reward in zip(chances, rewards, strict=True)]


def test_the_gradient_on_hanging_is_the_true_one_where_it_was_zero() -> None:
    """A session hangs in 3 of 8, is solved in 5 of 8 but for a tenth: its logit should fall by 0.23."""
    logits, rewards = [math.log(0.375), math.log(0.5625), math.log(0.0625)], [0.0, 1.0, 0.8]
    true = true_gradient(logits, rewards)
    assert true[0] == pytest.approx(-0.23, abs=0.005)
    assert gradient(logits, rewards, 4, void=False) == pytest.approx(true)
    assert gradient(logits, rewards, 4, void=True)[0] == pytest.approx(0.0, abs=1e-12)


@given(
    st.lists(st.floats(-2, 2), min_size=3, max_size=3),
    st.floats(0.01, 1),
    st.floats(0.01, 1),
    st.integers(2, 3),
)
def test_hanging_loses_whenever_the_others_earn_something(
    logits: list[float], one: float, other: float, size: int
) -> None:
    assert gradient(logits, [0.0, one, other], size, void=False)[0] < 0
    assert gradient(logits, [0.0, one, other], size, void=True)[0] == pytest.approx(0.0, abs=1e-9)
