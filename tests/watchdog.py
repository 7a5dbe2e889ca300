"""A watchdog over event loops: no callback may use more than 50 ms of its thread's CPU.

The CPU time of the loop's own thread is measured, so a loaded machine fails no test. The steps of the test
itself, uvicorn's start, and garbage collections are not counted: their length depends on
the whole test run.
"""

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MOST_S = 0.05
OURS = (
    "/tests/",
    "/benchmarks/",
    "/uvicorn/server.py",
    "/_pytest/",
    "/pytest_asyncio/",
    "/site-packages/aiohttp/client",
)


class Blocked(AssertionError):  # noqa: N818
    """Callbacks that kept their loop busy."""


@contextmanager
def watched(most_s: float = MOST_S, *, but: tuple[str, ...] = ()) -> Iterator[list[str]]:
    """Collect the callbacks that took longer, and raise Blocked at the end if there are any.

    `but` are parts of the paths of code that may take longer; say why beside it.
    """
    found: list[str] = []
    original = asyncio.Handle._run
    collected = [0.0, 0.0]

    def in_gc(phase: str, _: Any) -> None:
        if phase == "start":
            collected[0] = time.thread_time()
        else:
            collected[1] += time.thread_time() - collected[0]

    def run(handle: asyncio.Handle) -> None:
        what, (began, before) = handle._callback, (time.thread_time(), collected[1])
        original(handle)
        spent = time.thread_time() - began - (collected[1] - before)
        if spent > most_s and not _is_ours(what, but):
            found.append(f"{_named(what)} used {1e3 * spent:.0f} ms")

    asyncio.Handle._run = run  # type: ignore[method-assign]
    gc.callbacks.append(in_gc)
    try:
        yield found
    finally:
        asyncio.Handle._run = original  # type: ignore[method-assign]
        gc.callbacks.remove(in_gc)
    if found:
        raise Blocked("; ".join(found))


def _is_ours(callback: Any, but: tuple[str, ...]) -> bool:
    code = _code(callback)
    return code is not None and any(part in code.co_filename for part in (*OURS, *but))


def _code(callback: Any) -> Any:
    """Return the code of the coroutine that a task steps, or of a function."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        coroutine = owner.get_coro()
        return getattr(coroutine, "cr_code", None) or getattr(coroutine, "gi_code", None)
    return getattr(getattr(callback, "__func__", callback), "__code__", None)


def _named(callback: Any) -> str:
    code = _code(callback)
    return f"{code.co_filename}:{code.co_name}" if code is not None else repr(callback)[:200]
