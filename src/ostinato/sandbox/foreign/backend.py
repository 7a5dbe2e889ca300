"""A backend of sandboxes that a foreign engine runs."""

import asyncio
from contextlib import suppress

from ostinato.sandbox.base import (
    Backend,
    Capabilities,
    Exam,
    Isolation,
    Sandbox,
    SandboxError,
    Spec,
    Unsupported,
)
from ostinato.sandbox.foreign.client import GuestClient
from ostinato.sandbox.foreign.engine import ForeignEngine
from ostinato.sandbox.foreign.sandbox import ForeignSandbox

LOST = (
    "only the engine knows what isolates a sandbox, and what it can reach: see its templates",
    "output arrives when a command has ended, and no command has a standard input",
    "code that may end the engine's own processes in a sandbox can make its session void",
)


class ForeignBackend:
    """Sandboxes of `engine`; `judge` holds the exams, in sandboxes of its own."""

    def __init__(self, engine: ForeignEngine, judge: Backend) -> None:
        self.name = engine.name
        self.judge = judge
        self.capabilities = Capabilities(
            isolation=Isolation.PROCESS,
            fork=True,
            limits=frozenset({"rlimit"}),
            lost=(*LOST, *engine.lost),
        )
        self._engine = engine
        self._alive: set[ForeignSandbox] = set()

    async def create(self, spec: Spec) -> Sandbox:
        return await self.begin(spec, None)

    async def begin(self, spec: Spec, layer: bytes | None) -> ForeignSandbox:
        """Create a sandbox, with a layer above the repository if it is given."""
        if spec.mounts or spec.egress is not None or spec.image is not None:
            what = "mount anything, have an image as its root or restrict the network"
            raise Unsupported(self.name, what, "ns")
        if not spec.repo.is_dir():
            raise SandboxError(f"no repository at {spec.repo}: give a directory")
        machine = await self._engine.start()
        try:
            guest = GuestClient(machine)
            sandbox = ForeignSandbox(self, guest, spec, await guest.open(spec.repo, layer))
        except BaseException:
            with suppress(SandboxError):
                await asyncio.shield(machine.end())
            raise
        self._alive.add(sandbox)
        return sandbox

    async def examine(self, exam: Exam) -> list[dict[str, str]]:
        return await self.judge.examine(exam)

    def knows(self, sandbox: ForeignSandbox) -> bool:
        """Return whether the machine of a sandbox may still run."""
        return sandbox in self._alive

    def forget(self, sandbox: ForeignSandbox) -> None:
        self._alive.discard(sandbox)

    async def aclose(self) -> None:
        try:
            await asyncio.gather(*(sandbox.destroy() for sandbox in tuple(self._alive)))
        finally:
            await self.judge.aclose()
