"""Clones that wait for what they are to become.

What the last two machines both stood on, the next one will: a clone in the pool has those pages already.
One that stands on nothing but the image can become anything.
"""

import asyncio
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from ostinato.sandbox.backends.vm.qemu.memory import SavedPages
from ostinato.sandbox.backends.vm.qemu.vm import Hardware, QemuMachine
from ostinato.sandbox.base import SandboxError


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingClone:
    """A clone, and the ground that it has been given when `ready` is done."""

    machine: QemuMachine
    ground: SavedPages | None
    ready: "Future[None]"

    def fits(self, ground: SavedPages | None) -> bool:
        return self.ground is None or self.ground.same(ground)


class ClonePool:
    """As many as `size`; of no event loop, as backends are."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._waiting: deque[WaitingClone] = deque()
        self._threads = ThreadPoolExecutor(max_workers=max(size, 1), thread_name_prefix="qemu-pool")
        self.last: SavedPages | None = None
        self._usual: SavedPages | None = None

    def fill(self, hardware: Hardware) -> None:
        while len(self._waiting) < self._size:
            machine = QemuMachine.spawn(hardware, template=False)
            ready = self._threads.submit(machine.stand, self._usual)
            self._waiting.append(WaitingClone(machine=machine, ground=self._usual, ready=ready))

    async def take(self, ground: SavedPages | None) -> QemuMachine | None:
        """One that is alive and can stand on `ground`, best if it does already."""
        self._usual = ground if ground is not None and ground.same(self.last) else None
        self.last = ground
        for waiting in sorted(self._waiting, key=lambda each: each.ground is None):
            if waiting.fits(ground):
                self._waiting.remove(waiting)
                if await _whole(waiting):
                    return waiting.machine
        await self._drop_oldest()
        return None

    async def _drop_oldest(self) -> None:
        """Make room for one of use: all that wait stand on something else."""
        if self._waiting:
            await _end(self._waiting.popleft())

    async def aclose(self) -> None:
        while self._waiting:
            await _end(self._waiting.popleft())
        await asyncio.to_thread(self._threads.shutdown)


async def _whole(waiting: WaitingClone) -> bool:
    """Wait until it is ready; one that died, or could not be made so, is ended."""
    try:
        if not waiting.ready.done():
            await asyncio.wrap_future(waiting.ready)
        waiting.ready.result()
    except (OSError, SandboxError):
        await waiting.machine.end()
        return False
    except BaseException:
        await waiting.machine.end()
        raise
    if waiting.machine.alive():
        return True
    await waiting.machine.end()
    return False


async def _end(waiting: WaitingClone) -> None:
    await waiting.machine.end()
    with suppress(OSError, SandboxError):
        await asyncio.wrap_future(waiting.ready)
