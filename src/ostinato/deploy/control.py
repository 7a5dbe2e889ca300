"""The word of people over a running cycle: pause, resume, abort, promote, roll back.

A command writes its word into the log of the cycle, and the cycle reads it before each stage and each second
of a trial. So a word holds whichever process dies, and nobody has to reach the cycle's own process. A
roll-back does not wait for it: it takes the challenger's traffic away at once.

A word about a candidate is about the one in the trial under way, which goes on beside cycles, and without a
trial about that of the cycle under way.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from ostinato.deploy.release import end
from ostinato.deploy.traffic import restored
from ostinato.store import Store
from ostinato.store.cycle_log import CycleAction, CycleEntry, cycle_log, log_cycle, said_now
from ostinato.types import Arm, Decision
from ostinato.types.release import HOLD_OUT

DECIDED = "decided"
"""The message with which the wait for sessions is cancelled when no more are needed."""
OURS = "cycle"
"""The name under which the cycle logs what it does itself."""
LAST_WORDS = {
    CycleAction.ABORT: Decision.ROLL_BACK,
    CycleAction.ROLL_BACK: Decision.ROLL_BACK,
    CycleAction.PROMOTE: Decision.PROMOTE,
}
"""The words that end a trial, and the decision that each is."""


class CycleWordError(ValueError):
    """A word that cannot be obeyed now; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleState:
    """The state of the cycle, as its log tells it.

    >>> CycleState().paused
    False
    """

    cycle: str = ""
    stage: str = ""
    """The stage under way; empty between two cycles."""
    trial: str = ""
    """The trial under way beside the cycles, as `trial-of-12`; empty while there is none."""
    trial_stage: str = ""
    paused: bool = False
    word: CycleEntry | None = None
    """The last word of a person on the trial under way or on the cycle's candidate; None for none."""

    @property
    def subject(self) -> str:
        """The name of what a word about a candidate is about now; empty when nothing is under way."""
        return self.trial or (self.cycle if self.stage else "")


def state_of(entries: Sequence[CycleEntry]) -> CycleState:
    """Return the state after these entries."""
    state = CycleState()
    for entry in entries:
        match entry.action:
            case CycleAction.STAGE_BEGAN if entry.cycle == state.trial:
                state = replace(state, trial_stage=entry.detail)
            case CycleAction.STAGE_BEGAN:
                state = replace(state, cycle=entry.cycle, stage=entry.detail)
            case CycleAction.CYCLE_DONE:
                state = replace(state, stage="")
            case CycleAction.TRIAL_OPENED:
                state = replace(state, trial=entry.cycle)
            case CycleAction.TRIAL_CLOSED:
                state = replace(state, trial="", trial_stage="")
            case CycleAction.PAUSE | CycleAction.RESUME:
                state = replace(state, paused=entry.action is CycleAction.PAUSE)
            case CycleAction.ABORT | CycleAction.PROMOTE | CycleAction.ROLL_BACK:
                state = replace(state, word=entry)
    if state.word is not None and state.word.cycle not in {state.trial, state.cycle if state.stage else ""}:
        return replace(state, word=None)
    return state


def say(store: Store, action: CycleAction, by: str, reason: str) -> CycleEntry:
    """Log the word of a person. Raises CycleWordError for one that nothing can obey."""
    state = state_of(cycle_log(store))
    if action in LAST_WORDS and not state.subject:
        raise CycleWordError("no cycle is under way: there is no candidate to decide about")
    challenger = _in_trial(store)
    if action is CycleAction.PROMOTE and challenger is None:
        raise CycleWordError("no trial is under way: a candidate that met nobody is not promoted by hand")
    entry = said_now(by, action, state.subject or state.cycle, reason)
    log_cycle(store, entry)
    if challenger is not None and LAST_WORDS.get(action) is Decision.ROLL_BACK:
        end(store, challenger[1].experiment, restored(challenger), f"{by} said {action.value}: {reason}")
    return entry


def _in_trial(store: Store) -> tuple[Arm, Arm] | None:
    """Return the champion and the challenger of a trial under way, None when there is none.

    A candidate is newer than the version that it is tried against; the order of the arms says nothing.
    """
    arms = [arm for arm in store.arms() if arm.experiment not in {"", HOLD_OUT} and arm.share > 0]
    if len(arms) != 2:
        return None
    champion, challenger = sorted(arms, key=lambda arm: arm.version)
    return champion, challenger


class CycleControl:
    """The ear of a cycle or trial for the words of people, and its hand on the log."""

    def __init__(self, store: Store, cycle: str, poll_s: float = 1.0) -> None:
        self._store = store
        self._cycle = cycle
        self._poll_s = poll_s

    def log(self, action: CycleAction, detail: str = "") -> None:
        entry = CycleEntry(at=self._store.now(), by=OURS, action=action, cycle=self._cycle, detail=detail)
        log_cycle(self._store, entry)

    def log_once(self, action: CycleAction, detail: str) -> None:
        """Log the end of a stage or of the cycle, even if a kill came between its result and this entry."""
        wanted = action, self._cycle, detail
        if not any((e.action, e.cycle, e.detail) == wanted for e in cycle_log(self._store)):
            self.log(action, detail)

    def is_paused(self) -> bool:
        return state_of(cycle_log(self._store)).paused

    async def go_on(self) -> None:
        """Wait while the cycle is paused."""
        while True:
            if not self.is_paused():
                return
            await asyncio.sleep(self._poll_s)

    def word(self) -> CycleEntry | None:
        """Return the last word of a person that ends this candidate, None when nobody said one."""
        said = [e for e in cycle_log(self._store) if e.cycle == self._cycle and e.action in LAST_WORDS]
        return said[-1] if said else None

    async def unless(
        self, work: Awaitable[None], decided: Callable[[], Awaitable[bool]] | None = None
    ) -> CycleEntry | None:
        """Wait for `work`; cancel it when a person ends the candidate, or when it is `decided`.

        The log is read at whole multiples of the pause. `decided` is asked as often, but less often when it
        is slow: it takes a twentieth of the time at most. Return the word of the person, None when there is
        none.
        """
        task, clock = asyncio.ensure_future(work), asyncio.get_running_loop().time
        rested_at = 0.0
        try:
            while not task.done():
                if word := self.word():
                    return word
                await asyncio.wait({task}, timeout=self._poll_s - clock() % self._poll_s)
                started = clock()
                if decided is None or task.done() or started < rested_at:
                    continue
                if await decided():
                    return None
                rested_at = started + 20 * (clock() - started)
            await task
            return self.word()
        finally:
            if not task.done():
                task.cancel(DECIDED)
                await asyncio.wait({task})
