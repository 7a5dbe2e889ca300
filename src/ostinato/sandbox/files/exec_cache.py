"""Remembers results of commands by all that could influence them, for the sandboxes of one backend."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ostinato.sandbox.base import ExecResult, Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheKey:
    """Everything that decides the result of a command in a sandbox without network."""

    repo: str
    """The path and identity of the pristine repository, whose `.git` commands see too."""
    tree: str
    command: str


class ExecCache:
    """Keeps the most recent results, at most `entries`; only of commands that changed nothing.

    >>> cache = ExecCache(entries=1)
    >>> cache.get(CacheKey(repo="r", tree="t", command="true")) is None
    True
    """

    def __init__(self, entries: int = 4096) -> None:
        self._entries = entries
        self._results: OrderedDict[CacheKey, ExecResult] = OrderedDict()
        self._under_way: dict[CacheKey, asyncio.Event] = {}
        self.hits = 0
        self.misses = 0

    @asynccontextmanager
    async def turn(self, key: CacheKey) -> AsyncIterator[None]:
        """Let the first of equal runs end before the others begin, which may find its result then.

        Where it left none they go on at once, all at the same time.
        """
        before = self._under_way.get(key)
        if before is not None:
            await before.wait()
            yield
            return
        ended = self._under_way[key] = asyncio.Event()
        try:
            yield
        finally:
            del self._under_way[key]
            ended.set()

    def get(self, key: CacheKey) -> ExecResult | None:
        result = self._results.get(key)
        if result is None:
            self.misses += 1
            return None
        self.hits += 1
        self._results.move_to_end(key)
        return result

    def put(self, key: CacheKey, result: ExecResult) -> None:
        self._results[key] = result
        self._results.move_to_end(key)
        while len(self._results) > self._entries:
            self._results.popitem(last=False)


def identity(spec: Spec) -> str:
    """Return a repository's path and birth, with all else of the specification that a command sees."""
    repo = spec.repo
    status = (repo / ".git").stat() if (repo / ".git").exists() else repo.stat()
    more = sorted(spec.environment.items()), [(str(each.source), each.target) for each in spec.mounts]
    return f"{repo}:{status.st_dev}:{status.st_ino}:{status.st_ctime_ns}:{more}"
