"""A value that is made when it is first asked for, by one of all who ask at the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """A failure is not kept: the next one who asks tries again."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self.value: T | None = None

    async def get(self, make: Callable[[], Awaitable[T]]) -> T:
        async with self._turn:
            if self.value is None:
                self.value = await make()
            return self.value
