"""The calls of one reply that may run at the same time.

Calls that only read do not depend on each other, so a run of them begins together. Every other call begins
when all before it have ended, and nothing after it begins before its own end. Results, log and screen have
the order of the reply, so the model reads the same tokens however long each call took, and no reward can
depend on it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from ostinato.harness.conversation import Call
from ostinato.harness.execute import ToolResult
from ostinato.harness.permissions.rules import Action, Judgement

AT_ONCE = 8
"""The calls of one reply that run at the same time."""
Start = Callable[[], Awaitable[ToolResult]]
"""Begins a call, or goes on with the one that has begun."""


def runs(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """Yield the calls in order: neighbours that only read together, each other call alone."""
    run: list[Call] = []
    for call in calls:
        if run and not (run[-1].meant.reads and call.meant.reads):
            yield run
            run = []
        run.append(call)
    if run:
        yield run


@asynccontextmanager
async def begun(
    run: Sequence[Call],
    judged: Callable[[Call], Awaitable[Judgement]],
    result: Callable[[Call], Awaitable[ToolResult]],
) -> AsyncIterator[list[Start]]:
    """Begin the calls of a run that need nobody's permission; the others begin in their turn.

    What is still running at the end is cancelled.
    """
    room, running = asyncio.Semaphore(AT_ONCE), []

    async def one(call: Call) -> ToolResult:
        async with room:
            return await result(call)

    starts: list[Start] = []
    try:
        for call in run:
            if len(run) > 1 and call.meant.error is None and (await judged(call)).action is Action.ALLOW:
                running.append(task := asyncio.ensure_future(one(call)))
                starts.append(partial(asyncio.shield, task))
            else:
                starts.append(partial(result, call))
        yield starts
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
