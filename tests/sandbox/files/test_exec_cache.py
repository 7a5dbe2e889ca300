"""Results of commands are remembered up to a number of entries."""

import asyncio

from ostinato.sandbox.base import ExecResult
from ostinato.sandbox.files.exec_cache import CacheKey, ExecCache

RESULT = ExecResult(exit_code=0, output="", timed_out=False, duration_s=0.0)


def key(command: str) -> CacheKey:
    return CacheKey(repo="r", tree="t", command=command)


def test_the_least_recently_used_result_goes_first() -> None:
    cache = ExecCache(entries=2)
    cache.put(key("a"), RESULT)
    cache.put(key("b"), RESULT)
    assert cache.get(key("a")) == RESULT
    cache.put(key("c"), RESULT)
    assert cache.get(key("b")) is None
    assert cache.get(key("a")) == RESULT
    assert (cache.hits, cache.misses) == (2, 1)


async def test_equal_runs_wait_for_the_first_and_go_on_together() -> None:
    cache, order, end = ExecCache(), list[str](), asyncio.Event()

    async def run(name: str, command: str) -> None:
        async with cache.turn(key(command)):
            order.append(name)
            await end.wait()

    runs = [asyncio.create_task(run(name, name[0])) for name in ("a1", "a2", "a3", "b1")]
    for _ in range(5):
        await asyncio.sleep(0)
    assert order == ["a1", "b1"]
    runs[0].cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert order == ["a1", "b1", "a2", "a3"]
    end.set()
    await asyncio.gather(*runs[1:])
