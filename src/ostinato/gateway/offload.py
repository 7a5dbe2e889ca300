"""Work on large texts in a thread beside the event loop: a prompt of megabytes must not delay other requests.

One thread does it, one request after another. More threads would hold more memory and finish no sooner, since
they share the interpreter; and the threads that look up keys and sessions stay free.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

LARGE = 100 * 2**10
"""Bytes up to which work takes a few milliseconds at most and stays on the event loop."""
P = ParamSpec("P")
R = TypeVar("R")
_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large")


async def offload(size: int, function: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
    """Call `function` and return its result.

    The call runs in the thread when `size`, in bytes of text, is more than LARGE.
    """
    if size <= LARGE:
        return function(*arguments, **named)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREAD, lambda: function(*arguments, **named))
