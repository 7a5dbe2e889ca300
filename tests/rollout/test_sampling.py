"""Names, seeds, time limits, and that what is kept of a session is enough to verify it."""

import asyncio
from typing import Any

import pytest
from fuzz.practice import NumberRunner, problem
from hypothesis import given
from hypothesis import strategies as st

from ostinato.harness.client import TokenCount
from ostinato.harness.conversation import Outcome
from ostinato.harness.episode import Episode, Sampled
from ostinato.rollout import sampling
from ostinato.rollout.config import PracticeConfig
from ostinato.rollout.sampling import SlotWork
from ostinato.store import Store
from ostinato.types import Ending

OUTCOMES = st.builds(
    Outcome,
    session_id=st.text("0123456789abcdef-", min_size=1),
    ending=st.sampled_from(Ending),
    final_message=st.text(st.characters(exclude_categories=["Cs"])),
    turns=st.integers(0, 99),
    calls=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9)).map(tuple),
    broken=st.integers(0, 9),
    reason=st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    usage=st.builds(
        TokenCount, prompt=st.none() | st.integers(0, 9), reasoning=st.none() | st.integers(0, 9)
    ),
)
LEFT = st.none() | st.dictionaries(st.text("ab/.", min_size=1), st.none() | st.binary(max_size=40))


@given(st.none() | st.just("trunk"), st.lists(st.tuples(OUTCOMES, LEFT), max_size=3).map(tuple))
def test_what_is_kept_is_read_back(trunk: str | None, ended: tuple[Any, ...]) -> None:
    kept = sampling.unpack(sampling.pack(Sampled(trunk=trunk, ended=ended)))
    assert kept == Sampled(trunk=trunk, ended=ended)
    assert [outcome.usage for outcome, _ in kept.ended] == [outcome.usage for outcome, _ in ended]


def test_ids_and_seeds_follow_from_the_run_the_prompt_and_the_place() -> None:
    ids = {
        sampling.session_id(seed, prompt, number, attempt)
        for seed in (1, 2)
        for prompt in ("p", "q")
        for number in (0, 1)
        for attempt in (0, 1)
    }
    assert len(ids) == 16 and all(len(id) == 32 for id in ids)
    assert sampling.session_id(1, "p", 0, 0) in ids
    seeds = {sampling.sampling_seed(seed, prompt, n) for seed in (1, 2) for prompt in "pq" for n in (0, 1)}
    assert len(seeds) == 8 and max(seeds) < 1 << 62


def test_the_sessions_of_a_fork_are_named_after_its_trunk() -> None:
    assert sampling.names("s", 1) == ["s"]
    assert sampling.names("s", 3) == ["s", "s-0", "s-1", "s-2"]


class Hanging(NumberRunner):
    """A runner whose sessions, or verifications, never end."""

    def __init__(self, store: Store, what: str) -> None:
        super().__init__(store, version=lambda: 0)
        self._what = what

    async def grow(self, *about: Any, **named: Any) -> Sampled:
        if self._what == "session":
            await asyncio.Event().wait()
        return await super().grow(*about, **named)

    async def verify(self, task: Any, outcome: Outcome, changes: Any) -> Episode:
        if self._what == "verification" and outcome.ending is not Ending.INFRASTRUCTURE:
            await asyncio.Event().wait()
        return await super().verify(task, outcome, changes)


@pytest.mark.parametrize("what", ["session", "verification"])
async def test_what_does_not_end_is_void_after_the_time_limit(what: str, store: Store) -> None:
    task = problem(0).provide(None)  # type: ignore[arg-type]
    work = SlotWork(Hanging(store, what), PracticeConfig(session_s=0.05))
    (episode,) = await work.verify(task, await work.sample(task, "a" * 32, 5))
    assert episode.void == f"the {what} did not end within 0.05 s"
