"""What lives is left out of later collections, and garbage is not."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from ostinato.harness.frontends.terminal.memory import settle, unsettle


class Knot:
    """An object that only the collector can free."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    unsettle()


def test_garbage_is_collected_and_what_lives_is_left_out() -> None:
    kept, gone = Knot(), weakref.ref(Knot())
    settle()
    assert gone() is None
    assert gc.get_freeze_count() > 0
    assert not any(each is kept for each in gc.get_objects())


def test_afterwards_the_collector_has_everything_again() -> None:
    knot = Knot()
    watched = weakref.ref(knot)
    settle()
    unsettle()
    assert gc.get_freeze_count() == 0
    del knot
    gc.collect()
    assert watched() is None
