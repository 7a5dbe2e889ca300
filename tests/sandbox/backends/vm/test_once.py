"""A value that is made once, by whichever call comes first."""

import asyncio

import pytest

from ostinato.sandbox.backends.vm.once import Once


async def test_concurrent_calls_get_the_same_value() -> None:
    made: list[int] = []

    async def make() -> int:
        await asyncio.sleep(0)
        made.append(1)
        return len(made)

    once: Once[int] = Once()
    assert await asyncio.gather(*(once.get(make) for _ in range(5))) == [1] * 5


async def test_a_failure_is_not_stored() -> None:
    async def fail() -> int:
        raise OSError("not yet")

    async def make() -> int:
        return 7

    once: Once[int] = Once()
    with pytest.raises(OSError, match="not yet"):
        await once.get(fail)
    assert await once.get(make) == 7
