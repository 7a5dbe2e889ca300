"""The parts of a unittest test: an exception that ended one is noted, whatever unittest makes of it.

Unittest lets `unittest.case._ShouldStop`, or what tested code has put under that name, end a test that then
counts as passed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import case

from ostinato.sandbox.exam.guarded.inside.watch import TamperWatch


def instrument(watch: TamperWatch) -> list[str]:
    """Return the list to which each exception that ends a part of a test adds its name; a skip is none."""
    raised: list[str] = []
    outcome, skips = case._Outcome, (case.SkipTest, KeyboardInterrupt)  # type: ignore[attr-defined]
    execute = outcome.testPartExecutor

    @contextmanager
    def executor(self: Any, *arguments: Any, **named: Any) -> Iterator[None]:
        with execute(self, *arguments, **named):
            try:
                yield
            except skips:
                raise
            except BaseException as error:
                raised.append(type(error).__name__)
                raise

    watch.replace("unittest.case._Outcome", outcome, "testPartExecutor", executor)
    return raised
