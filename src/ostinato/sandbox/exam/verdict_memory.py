"""The verdicts of practice, remembered: sessions of one task that left the same files share one exam."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from ostinato.sandbox.base import Backend
from ostinato.sandbox.exam.judged.host import UNFINISHED
from ostinato.sandbox.exam.verifier import MISSING, UNSTABLE, Verification, Verifier
from ostinato.types import Grade, Task

ENTRIES = 4096
"""The most verdicts that are remembered; those that were not asked for the longest are forgotten first."""
SOON = 0.25
"""The share of a task's time within which an exam must end for its verdict to be remembered."""


@dataclass(slots=True)
class _Known:
    """What is known of one task and one change: nothing yet, a verdict, or that each must be examined."""

    examining: asyncio.Lock = field(default_factory=asyncio.Lock)
    examined: bool = False
    verdict: Verification | None = None


class RememberingVerifier(Verifier):
    """A verifier that examines equal changes of one task once, as long as the verdict depends on them alone.

    Remembered are verdicts of the judge in which each expected test failed, or each passed in every run, and
    that came soon. One that is void, late or unstable, or in which a test did not run, holds for its own
    session only: the next one with these changes is examined again. A task is known by its folder, whose
    files must not change meanwhile. Measurements use `Verifier`, which examines each session.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    async def verify(self, task: Task, changes: Mapping[str, bytes | None]) -> Verification:
        """Return the verdict on these changes; those that are being examined are waited for."""
        known = self._entry(task, changes)
        async with known.examining:
            if not known.examined:
                started = time.monotonic()
                verdict = await super().verify(task, changes)
                soon = time.monotonic() - started < SOON * task.timeout_s
                known.verdict = verdict if soon and _settled(verdict) else None
                known.examined = True
                return verdict
        return known.verdict or await super().verify(task, changes)

    def _entry(self, task: Task, changes: Mapping[str, bytes | None]) -> _Known:
        key = _key(task, changes)
        known = self._known.setdefault(key, _Known())
        self._known.move_to_end(key)
        while len(self._known) > ENTRIES:
            self._known.popitem(last=False)
        return known


def _settled(verdict: Verification) -> bool:
    """Return True when another exam of the same changes would come to the same verdict."""
    doubtful = {MISSING, UNSTABLE} & set(verdict.outcomes.values()) or UNFINISHED in verdict.outcomes
    return verdict.void is None and verdict.grade is Grade.JUDGED and not doubtful


def _key(task: Task, changes: Mapping[str, bytes | None]) -> bytes:
    digest = hashlib.blake2b(digest_size=32)
    parts: list[bytes | None] = [str(task.directory).encode()]
    for path in sorted(changes):
        parts += [path.encode(errors="surrogateescape"), changes[path]]
    for part in parts:
        digest.update(b"-" if part is None else b"%d:" % len(part) + part)
    return digest.digest()
