"""The witness of guarded exams: it finds out which changes of the machinery installed libraries always make.

    run: `inspect.getfile` is a function of torch ─► sandbox without the repository: import torch ─► so too?

Only a change that comes about there too, by a function with the same code, is no sign of tampering.
"""

import asyncio
import secrets
from collections.abc import Collection
from pathlib import Path

from ostinato.sandbox.base import Backend, EndedWithinError, Exam, Spec
from ostinato.sandbox.exam.guarded.inside import start, witness
from ostinato.sandbox.exam.guarded.reports import ChangedName, SuiteReports
from ostinato.sandbox.exam.guarded.runners.base import follow
from ostinato.sandbox.exam.guarded.runners.python import order_of
from ostinato.sandbox.exam.variations import GRACE_S
from ostinato.sandbox.files.scratch import Scratch
from ostinato.sandbox.protocol.connection import ResponseTimeoutError


class Witness:
    """The libraries of a backend's sandboxes, loaded where no candidate is; what was seen is remembered."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._seen: set[tuple[Path | None, ChangedName]] = set()

    async def unexplained(self, exam: Exam, found: Collection[ChangedName]) -> list[str]:
        """Return as signs the changes that no library makes by itself. Raises SandboxError."""
        root = exam.image.root if exam.image else None
        if any((root, each) not in self._seen for each in found):
            modules = sorted({each.module for each in found})
            self._seen |= {(root, each) for each in await self._look(exam, modules)}
        return sorted(each.sign for each in found if (root, each) not in self._seen)

    async def _look(self, exam: Exam, modules: list[str]) -> set[ChangedName]:
        nonce = secrets.token_hex(32)
        reports = SuiteReports(nonce, (), {})
        order = order_of(witness.__name__, {"nonce": nonce, "modules": modules})
        with Scratch("witness") as scratch:
            empty = scratch.path / "repo"
            await asyncio.to_thread(empty.mkdir)
            sandbox = await self._backend.create(Spec(repo=empty, limits=exam.limits, image=exam.image))
            try:
                async with asyncio.timeout(exam.limits.wall_s + GRACE_S):
                    await follow(sandbox, start.COMMAND, order, reports)
            except (EndedWithinError, ResponseTimeoutError, TimeoutError):
                pass  # a library that ends or hangs when it is loaded: what was reported counts
            finally:
                await sandbox.destroy()
        return reports.replacements
