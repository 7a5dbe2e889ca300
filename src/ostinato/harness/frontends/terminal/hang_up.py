"""A terminal that goes away: where SIGHUP is ignored, nothing else says so."""

import asyncio
import select

LOOK_S = 1.0


async def hung_up(descriptor: int) -> None:
    """Return once the terminal behind a descriptor is gone.

    A program whose parent ignores SIGHUP (`nohup`, some supervisors) is not told. Textual would go on
    reading an end of file, with all of a core.
    """
    terminal = select.poll()
    terminal.register(descriptor, 0)
    while not terminal.poll(0):  # noqa: ASYNC110 - no event tells of it
        await asyncio.sleep(LOOK_S)
