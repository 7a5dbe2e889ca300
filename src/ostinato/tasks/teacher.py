"""A scripted teacher with human habits: the source of the first demonstrations."""

from collections.abc import Iterator, Sequence
from itertools import chain
from random import Random

from ostinato.tasks.habits import BROKEN_SHARE, DONE, HABITS, Habit, Scene, broken_call
from ostinato.tasks.pebble.base import Pebble
from ostinato.tasks.view import Message, look


def choose_habit(kind: str, rng: Random) -> Habit:
    habits, shares = zip(*HABITS[kind], strict=True)
    chosen: Habit = rng.choices(habits, shares)[0]
    return chosen


class Teacher:
    """One session's teacher; call `act` once for each assistant turn."""

    def __init__(self, pebble: Pebble, rng: Random) -> None:
        self.habit = choose_habit(pebble.kind, rng)
        self._scene = Scene(pebble=pebble, rng=rng)
        self._texts: Iterator[str] = self.habit(self._scene)
        if rng.random() < BROKEN_SHARE:
            self._texts = chain([broken_call(self._scene.target.path)], self._texts)

    def act(self, messages: Sequence[Message]) -> str:
        """The next assistant text, given the messages so far (tool results included); `done` at the end."""
        self._scene.view = look(messages)
        return next(self._texts, DONE)
