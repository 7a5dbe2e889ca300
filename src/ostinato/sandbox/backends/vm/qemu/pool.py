"""Clones that are started ahead and wait for the saved machine that they are to become.

If the last two machines had the same ground (see `memory`), the next one probably has it, too, and a clone in
the pool gets those pages ahead. A clone with only the image's pages can become any machine.
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
    """A clone that waits; it has its ground once `ready` is done."""

    machine: QemuMachine
    ground: SavedPages | None
    ready: "Future[None]"

    def fits(self, ground: SavedPages | None) -> bool:
        return self.ground is None or self.ground.same(ground)


class ClonePool:
    """Keeps `size` clones waiting; it belongs to no event loop, since a backend may be used in several."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._waiting: deque[WaitingClone] = deque()
        self._threads = ThreadPoolExecutor(max_workers=max(size, 1), thread_name_prefix="qemu-pool")
        self.last: SavedPages | None = None
        self._usual: SavedPages | None = None

    def fill(self, hardware: Hardware) -> None:
        while len(self._waiting) < self._size:
            machine = QemuMachine.spawn(hardware, template=False)
            ready = self._threads.submit(machine.load_ground, self._usual)
            self._waiting.append(WaitingClone(machine=machine, ground=self._usual, ready=ready))

    async def take(self, ground: SavedPages | None) -> QemuMachine | None:
        """Return a living clone that has `ground` already or can get it; None when there is none."""
        self._usual = ground if ground is not None and ground.same(self.last) else None
        self.last = ground
        for waiting in sorted(self._waiting, key=lambda each: each.ground is None):
            if waiting.fits(ground):
                self._waiting.remove(waiting)
                if await _is_usable(waiting):
                    return waiting.machine
        await self._drop_oldest()
        return None

    async def _drop_oldest(self) -> None:
        """Make room for a clone with the right ground; all that wait have another one."""
        if self._waiting:
            await _end(self._waiting.popleft())

    async def aclose(self) -> None:
        while self._waiting:
            await _end(self._waiting.popleft())
        await asyncio.to_thread(self._threads.shutdown)


async def _is_usable(waiting: WaitingClone) -> bool:
    """Wait until a clone is ready; end it and return False when it died or could not be made ready."""
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
