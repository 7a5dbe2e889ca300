import asyncio
import time

import pytest
from tests.watchdog import Blocked, watched

SPIN = "def spin(s):\n import time\n end = time.thread_time() + s\n while time.thread_time() < end: pass\n"


def test_a_callback_that_computes_too_long_is_named() -> None:
    names: dict[str, object] = {}
    exec(compile(SPIN, "/somewhere/else.py", "exec"), names)

    async def late() -> None:
        asyncio.get_running_loop().call_soon(names["spin"], 0.08)
        await asyncio.sleep(0.01)

    with pytest.raises(Blocked, match=r"/somewhere/else.py:spin used"), watched():
        asyncio.run(late())


def test_one_that_waits_is_left_alone() -> None:
    async def waits() -> None:
        asyncio.get_running_loop().call_soon(time.sleep, 0.08)
        await asyncio.sleep(0.01)

    with watched() as found:
        asyncio.run(waits())
    assert not found
