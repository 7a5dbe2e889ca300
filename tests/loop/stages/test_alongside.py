import asyncio

import pytest

from ostinato.loop.stages.alongside import alongside


async def test_work_beside_a_block_is_waited_for_and_ends_with_a_block_that_fails() -> None:
    done = []

    async def work() -> None:
        await asyncio.sleep(0)
        done.append("work")

    async with alongside(work()):
        done.append("block")
    assert done == ["block", "work"]
    with pytest.raises(ValueError, match="of the block"):
        async with alongside(asyncio.Event().wait()) as task:  # type: ignore[arg-type]
            raise ValueError("of the block")
    assert task.cancelled()


async def test_an_error_of_the_work_is_raised() -> None:
    async def work() -> None:
        raise ValueError("of the work")

    with pytest.raises(ValueError, match="of the work"):
        async with alongside(work()):
            pass
