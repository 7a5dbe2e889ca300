"""A virtual clock: an event loop whose time jumps to the next thing that anybody waits for.

Everything that waits by asyncio runs on it unchanged: a release of hours takes the time of its arithmetic.
Work for threads is done at once, in place, so that nothing depends on how fast the machine is.
"""

import asyncio
import selectors
from asyncio import Future
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
STEP_S = 1e-6
"""The least that time moves on, above the rounding of seconds since the epoch."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock begins at `start`, in seconds since the epoch, and never waits."""

    def __init__(self, start: float) -> None:
        self._at = start
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self._at

    def jump(self, seconds: float) -> None:
        """Move the clock on by a little more than that, since a timer runs when its moment is over."""
        self._at += seconds + STEP_S

    @property
    def is_idle(self) -> bool:
        """True when nothing can run before the clock moves on."""
        return not self._ready  # type: ignore[attr-defined]

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> "Future[T]":  # type: ignore[override]
        done: Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


class _Jumping(selectors.DefaultSelector):
    """A selector that moves its loop's clock instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            return super().select(None)
        if self._loop.is_idle:
            self._loop.jump(timeout)
        return super().select(0)


def run_virtually(start: float, main: Callable[[Callable[[], float]], Coroutine[Any, Any, T]]) -> T:
    """Run `main` on a virtual clock; it is given the function that returns the time."""
    loop = VirtualLoop(start)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main(loop.time))
