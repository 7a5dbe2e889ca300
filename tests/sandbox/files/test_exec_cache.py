"""Results of commands are remembered up to a number of entries."""

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
