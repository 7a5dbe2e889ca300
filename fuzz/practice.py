"""The reconciler of practice with sessions that a number decides, for random schedules and repeated runs.

The reconciler, the slots and the ledger are the real ones. A session is two turns recorded in the real store,
whose tokens and verdict follow from its seed; some sandboxes and verifiers fail, as the session's id decides.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from sqlalchemy import select

from ostinato.harness.conversation import Outcome
from ostinato.harness.episode import Episode, Left, Sampled, failed
from ostinato.harness.users import Answering
from ostinato.rollout.config import PracticeConfig
from ostinato.rollout.reconciler import Reconciler, Training
from ostinato.rollout.sampling import SlotWork
from ostinato.store import Store
from ostinato.store.ledger.slot_rows import INTERRUPTED, SlotState
from ostinato.store.sql.schema import prompts, slots
from ostinato.tasks.source import Problem
from ostinato.types import (
    Completion,
    Ending,
    FinishReason,
    Grade,
    Reward,
    RewardPart,
    Session,
    Signal,
    SignalKind,
    Source,
    Task,
    Turn,
)

SHAPE = """
[model.shape]
vocab_size = 0
hidden_size = 32
layers = 2
heads = 1
kv_heads = 1
experts = 4
expert_size = 32
"""
"""The settings of a model that is too small to learn, for runs of real processes."""

KINDS = ("fix", "spread", "question")
NO_FAULTS: Callable[[], None] = lambda: None  # noqa: E731


def problem(number: int) -> Problem:
    """Return problem number `number` of a stream without end; its task lies nowhere."""
    key, kind = f"p{number}", KINDS[number % len(KINDS)]

    def provide(folder: Path) -> Task:
        return Task(
            id=key, kind=kind, split="train", key=key, instruction="do", directory=folder, test_ids=()
        )

    return Problem(id=key, key=key, kind=kind, split="train", grade=Grade.JUDGED, provide=provide)


class SolvedReward:
    """A definition of reward: 1 for a solved session, less a little for each turn."""

    def score(
        self, session_id: str, turns: Sequence[Turn], signals: Sequence[Signal], *, as_of: float | None = None
    ) -> Reward:
        solved = [float(each.value) for each in signals if each.kind is SignalKind.HIDDEN_TESTS]
        parts = (
            RewardPart(name="solved", value=solved[-1]),
            RewardPart(name="turns", value=-0.1 * len(turns)),
        )
        return Reward(session_id=session_id, definition="solved", parts=parts)


SOLVED = SolvedReward()


class NumberRunner:
    """A `SessionRunner` whose sessions follow from their seeds.

    `point` is called wherever another actor may act or this process may die. `version` returns the version
    that a token is sampled with. `failing` is the share of sandboxes and verifications that fail.
    """

    def __init__(
        self,
        store: Store,
        *,
        version: Callable[[], int],
        point: Callable[[], None] = NO_FAULTS,
        failing: float = 0.0,
        wait: Callable[[random.Random], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._version = version
        self._point = point
        self._failing = failing
        self._wait = wait

    async def grow(
        self,
        task: Task,
        user: Answering,
        *,
        source: Source,
        session_id: str,
        seed: int | None,
        after: int,
        branches: int,
    ) -> Sampled:
        chance, fault = random.Random(seed), random.Random(session_id)
        about = Session(
            id=session_id,
            source=source,
            user="practice",
            arm="practice",
            task_id=task.id,
            harness="h",
            started_at=1.0,
        )
        turns = 1 + chance.randrange(2)
        for index in range(turns):
            await (self._wait(chance) if self._wait else asyncio.sleep(0))
            self._point()
            if fault.random() < self._failing:
                return Sampled(trunk=None, ended=((failed(session_id, "the sandbox failed"), {}),))
            self._store.record([self._turn(session_id, index, chance)], sessions=[about])
        self._store.end_session(session_id, Ending.FINISHED)
        outcome = Outcome(
            session_id=session_id,
            ending=Ending.FINISHED,
            final_message=str(seed),
            turns=turns,
            calls=(),
        )
        return Sampled(trunk=None, ended=((outcome, {"a.py": b"x", "b.py": None}),))

    def _turn(self, session_id: str, index: int, chance: random.Random) -> Turn:
        drawn = chance.randrange(100)
        completion = Completion(
            ids=(drawn,), logprobs=(-0.5,), versions=(self._version(),), finish=FinishReason.STOP
        )
        return Turn(
            session_id=session_id,
            index=index,
            segment=index,
            prompt_ids=(index, 2),
            completion=completion,
            arm="practice",
            started_at=1.0,
            latency_s=0.1,
        )

    async def verify(self, task: Task, outcome: Outcome, changes: Left) -> Episode:
        await asyncio.sleep(0)
        self._point()
        fault = random.Random(f"verify/{outcome.session_id}").random() < self._failing
        spoilt = outcome.ending is Ending.INFRASTRUCTURE
        return Episode(
            task=task,
            session_id=outcome.session_id,
            outcome=outcome,
            changed=True,
            solved=random.Random(outcome.final_message).random() < 0.5,
            tampered=False,
            void=outcome.reason if spoilt else "the verifier failed" if fault else None,
        )


def reconciler(
    store: Store, runner: NumberRunner, folder: Path, config: PracticeConfig, training: Training, **more: Any
) -> Reconciler:
    return Reconciler(SlotWork(runner, config), store, SOLVED, folder, training, **{"seed": 7, **more})


def defects(store: Store) -> Counter[str]:
    """Return the counts over all slots that must be zero.

    *redone* are sessions that had ended and were sampled again though nothing of ours had failed; *illegal*
    are transitions that there are not; *open* are slots without an end whose prompt has ended.
    """
    counts: Counter[str] = Counter(redone=0, illegal=0, open=0)
    order: dict[tuple[str, int], list[tuple[SlotState, str | None]]] = {}
    with store.database.read() as connection:
        phases = {row[0]: row[1] for row in connection.execute(select(prompts.c.prompt, prompts.c.phase))}
        for row in connection.execute(select(slots).order_by(slots.c.order)):
            order.setdefault((row.prompt, row.number), []).append((SlotState(row.state), row.reason))
    for (prompt, _), rows in order.items():
        for (before, _), (after, reason) in pairwise(rows):
            counts["redone"] += before is SlotState.FINISHED and reason == INTERRUPTED
            counts["illegal"] += after not in AFTER[before]
        ended = rows[-1][0] in {SlotState.TRAINED, SlotState.DROPPED}
        counts["open"] += phases[prompt] not in {"reserved", "offered", "claimed"} and not ended
    return counts


AFTER: dict[SlotState, set[SlotState]] = {
    SlotState.PLANNED: {SlotState.RUNNING, SlotState.DROPPED},
    SlotState.RUNNING: {SlotState.FINISHED, SlotState.PLANNED, SlotState.DROPPED},
    SlotState.FINISHED: {SlotState.SCORED, SlotState.PLANNED, SlotState.DROPPED},
    SlotState.SCORED: {SlotState.GROUPED, SlotState.DROPPED},
    SlotState.GROUPED: {SlotState.TRAINED, SlotState.DROPPED},
    SlotState.DROPPED: {SlotState.TRAINED},
    SlotState.TRAINED: set(),
}
"""What may follow each state, written down apart from the code that is examined."""
