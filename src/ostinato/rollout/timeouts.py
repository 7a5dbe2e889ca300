"""The judgement of a session that exceeded its time: an outcome of the model's, or a failure of ours.

A policy that hangs must lose by it, so such a session counts as unsolved, unless there is evidence that our
side was at fault. A group whose late sessions were left out would have no gradient at all on what made them
late: its other advantages add up to 0.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import median

from ostinato.harness.conversation import Outcome
from ostinato.harness.episode import failed
from ostinato.sandbox.base import Backend, SandboxError, Spec
from ostinato.store import Store
from ostinato.types import Ending, Signal, SignalKind, Source, Task, Turn

log = logging.getLogger(__name__)
PROBE_S = 30.0
"""The seconds within which a sandbox that does nothing must begin, answer and end."""
MOST_LOAD = 10.0
"""Runnable processes for each core from which on commands get too little of their time limits."""
MOST_SLOWNESS = 3.0
"""The seconds a sampled token took, over what it took others, from which on the engine was at fault."""
OTHERS = 32
"""The newest ended sessions of practice that it is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of our side when a session exceeded its time.

    >>> Evidence(turns=3, engine=True, sandbox="", load=1.5, slowness=1.1).fault
    ''
    """

    turns: int
    """Turns of it that were recorded: so often an engine and the gateway have answered it."""
    engine: bool
    """True when the engine answers now."""
    sandbox: str
    """The failure of a sandbox that was tried now; empty for none."""
    load: float
    """Runnable processes for each core over the last five minutes."""
    slowness: float
    """Seconds a sampled token took in it, over the median of other sessions; 1.0 where there are none."""

    @property
    def fault(self) -> str:
        """The failure of ours; empty when every part of our side was healthy."""
        if not self.turns:
            return "no turn of it was recorded"
        if not self.engine:
            return "the engine does not answer"
        if self.sandbox:
            return f"a sandbox that was tried failed: {self.sandbox}"
        if self.load > MOST_LOAD:
            return f"the machine is overloaded: {self.load:.1f} processes for each core"
        if self.slowness > MOST_SLOWNESS:
            return f"the engine took {self.slowness:.1f} times as long for a token as for other sessions"
        return ""


@dataclass(frozen=True, slots=True)
class Examiner:
    """Finds out who was at fault. `served` returns the version that the engine serves, None while away."""

    store: Store
    backend: Backend
    served: Callable[[], Awaitable[int | None]]

    async def outcome(self, task: Task, id: str, why: str) -> Outcome:
        """Return the outcome of session `id`, which exceeded its time as `why` says.

        Where our side was healthy it is one of the model's, TURN_LIMIT, and recorded as the ending.
        """
        turns = self.store.turns(id)
        evidence = Evidence(
            turns=len(turns),
            engine=await self.served() is not None,
            sandbox=await self._tried(task),
            load=os.getloadavg()[1] / (os.cpu_count() or 1),
            slowness=self._slowness(id, turns),
        )
        if evidence.fault:
            return failed(id, f"{why}, and {evidence.fault}")
        log.warning("session %s on %s counts as unsolved: %s", id, task.key, why)
        kind, ending = SignalKind.ENDING, Ending.TURN_LIMIT
        told = Signal(
            session_id=id, kind=kind, value=ending.value, observed_at=time.time(), id=f"{id}/ending"
        )
        self.store.record((), [told])
        return Outcome(session_id=id, ending=ending, final_message="", turns=len(turns), calls=(), reason=why)

    async def _tried(self, task: Task) -> str:
        """Return the failure of a fresh sandbox of the task that does nothing; empty for none."""
        try:
            async with asyncio.timeout(PROBE_S):
                sandbox = await self.backend.create(Spec(repo=task.repo))
                try:
                    result = await sandbox.exec("true", timeout_s=PROBE_S)
                finally:
                    await sandbox.destroy()
        except TimeoutError:
            return f"it took longer than {PROBE_S:g} s"
        except SandboxError as error:
            return str(error)
        return "" if result.exit_code == 0 else f"`true` ended with status {result.exit_code}"

    def _slowness(self, id: str, turns: Sequence[Turn]) -> float:
        recent = self.store.sessions(source=Source.PRACTICE, ended=True, limit=OTHERS)
        others = self.store.turns_of([session.id for session in recent if session.id != id]).values()
        paces = [pace for each in others if (pace := _pace(each)) > 0]
        return _pace(turns) / median(paces) if paces else 1.0


def _pace(turns: Sequence[Turn]) -> float:
    """Return the seconds that a sampled token took; 0 without any."""
    tokens = sum(len(turn.completion.ids) for turn in turns)
    return sum(turn.latency_s for turn in turns) / tokens if tokens else 0.0
