"""A value that is made when it is first needed, and only once if several tasks need it at the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """A value made by the first call of `get`; after a failure the next call tries again."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self.value: T | None = None

    async def get(self, make: Callable[[], Awaitable[T]]) -> T:
        async with self._lock:
            if self.value is None:
                self.value = await make()
            return self.value
