"""A scripted teacher with human habits: the source of the first demonstrations."""

from collections.abc import Iterator, Sequence
from itertools import chain
from random import Random

from ostinato.tasks.pebble.base import Pebble
from ostinato.tasks.teaching.habits import BROKEN_SHARE, DONE, HABITS, Habit, Scene, broken_call
from ostinato.tasks.teaching.visible_state import Message, asks_for_a_summary, visible_state


class Teacher:
    """The teacher of one session; call `act` once for each assistant turn."""

    def __init__(self, pebble: Pebble, rng: Random) -> None:
        habits, shares = zip(*HABITS[pebble.kind], strict=True)
        self.habit: Habit = rng.choices(habits, shares)[0]
        self._scene = Scene(pebble=pebble, rng=rng)
        self._texts: Iterator[str] = self.habit(self._scene)
        if rng.random() < BROKEN_SHARE:
            self._texts = chain([broken_call(self._scene.target.path)], self._texts)

    def act(self, messages: Sequence[Message]) -> str:
        """Return the next assistant text, from the messages and tool results so far; `done` at the end."""
        self._scene.state = visible_state(messages)
        self._scene.note()
        if asks_for_a_summary(messages):
            return self._scene.summary()
        return next(self._texts, DONE)
