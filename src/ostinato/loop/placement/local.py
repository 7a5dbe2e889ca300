"""Services as children of this process, which end with it."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from functools import partial

from ostinato.loop.placement.base import LOOPBACK, STOP_TIMEOUT_S, ServiceCommand

PR_SET_PDEATHSIG = 1


class LocalPlace:
    """Room on this machine. `dies_by` is the signal that a child gets when this process ends (Linux only)."""

    def __init__(self, host: str = LOOPBACK, dies_by: int = signal.SIGTERM) -> None:
        self.host = host
        self._dies_by = dies_by
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self._started.pid

    async def start(self, command: ServiceCommand) -> None:
        with command.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *command.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE if command.speaks else log,
                stderr=log,
                env={**os.environ, **command.environment},
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid(), self._dies_by),
            )

    async def line(self) -> bytes:
        assert self._started.stdout is not None
        return await self._started.stdout.readline()

    async def ended(self) -> int:
        return await self._started.wait()

    async def answers(self, timeout_s: float) -> bool:
        return True

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    async def stop(self) -> None:
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._started.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._started.wait()

    async def leave(self) -> None:
        pass

    @property
    def _started(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise RuntimeError("nothing was started here")
        return self._process

    def _signal(self, number: int) -> None:
        if self._started.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._started.send_signal(number)


def die_with_parent(parent: int, number: int = signal.SIGTERM) -> None:
    """Make a child end with its parent, even a killed one (Linux only). Runs in the child.

    A child whose parent was killed before it could ask for the signal ends now: else it would keep its port.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os._exit(1)


class LocalPlacement:
    """Places on this machine, of which there are always more; others reach it at the address `here`."""

    def __init__(self, here: str = LOOPBACK) -> None:
        self.here = here

    async def find(self, name: str, kind: str) -> LocalPlace:
        return LocalPlace(self.here)

    async def reserve(self, kinds: list[str]) -> None:
        pass

    async def aclose(self) -> None:
        pass
