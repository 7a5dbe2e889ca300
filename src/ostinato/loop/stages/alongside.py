"""Work beside other work: lessons beside their trainer, samplers beside the learner, trials beside cycles."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@asynccontextmanager
async def alongside(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run `work` beside the block: wait for it when the block ends, cancel it when the block fails."""
    task = asyncio.create_task(work)
    try:
        yield task
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def both(one: Coroutine[Any, Any, T], other: Coroutine[Any, Any, None]) -> T:
    """Run two works side by side to their ends, and return the result of `one`; when either fails, cancel the
    other, and raise."""
    first, second = asyncio.create_task(one), asyncio.create_task(other)
    try:
        await asyncio.wait({first, second}, return_when=asyncio.FIRST_EXCEPTION)
        for task in (first, second):
            if task.done():
                task.result()
        return first.result()
    finally:
        first.cancel()
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
