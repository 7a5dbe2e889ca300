"""The choice of a demonstrator: scripted habits for a pebble, the reference solution for any other task."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from random import Random
from typing import Protocol

from ostinato.tasks.pebble import pebble_of
from ostinato.tasks.pebble.base import Pebble
from ostinato.tasks.teaching.habits import BROKEN_SHARE, DONE, HABITS, Habit, Scene, broken_call, call
from ostinato.tasks.teaching.visible_state import Message, asks_for_a_summary, visible_state
from ostinato.types import Task

HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@.*\n", re.MULTILINE)
TESTS = "python -m pytest -q"


class Demonstrator(Protocol):
    """A script that does a task in a session, one assistant turn after the other."""

    def act(self, messages: Sequence[Message]) -> str:
        """Return the next assistant text, from the messages and tool results so far."""
        ...


class Teacher:
    """A scripted teacher with human habits, for one session: call `act` once for each assistant turn."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """One place of a patch.

    >>> Replacement(path="a.py", old="x = 1\\n", new="x = 2\\n").path
    'a.py'
    """

    path: str
    old: str
    new: str


class SolutionTeacher:
    """The demonstrator of a reference solution: it reads each file, makes its edits, and runs the tests."""

    def __init__(self, replacements: Sequence[Replacement]) -> None:
        self._texts = self._turns(replacements)

    def act(self, messages: Sequence[Message]) -> str:
        return next(self._texts, DONE)

    def _turns(self, replacements: Sequence[Replacement]) -> Iterator[str]:
        seen = set()
        for each in replacements:
            if each.path not in seen:
                seen.add(each.path)
                yield call("read", path=each.path)
            yield call("edit", path=each.path, old_string=each.old, new_string=each.new)
        yield call("bash", command=TESTS)


def demonstrator(task: Task, rng: Random) -> Demonstrator | None:
    """Return the demonstrator of a task; None when its solution is no patch that the edit tool can make."""
    if (pebble := pebble_of(task)) is not None:
        return Teacher(pebble, rng)
    patches = sorted((task.directory / "solution").glob("*.patch"))
    try:
        replacements = [each for path in patches for each in _replacements(path)]
    except UnicodeDecodeError:  # the edit tool writes UTF-8 alone
        return None
    if not replacements or not all(_is_unique(task, each) for each in replacements):
        return None
    return SolutionTeacher(replacements)


def _replacements(path: Path) -> Iterator[Replacement]:
    """Yield the hunks of a unified diff as replacements; a new or deleted file has an empty text."""
    for part in re.split(r"^(?=--- )", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        head, *hunks = HUNK.split(part)
        name = head.splitlines()[1].removeprefix("+++ ").split("\t")[0].removeprefix("b/")
        for hunk in hunks:
            lines = [line for line in hunk.splitlines(keepends=True) if line[:1] in {" ", "-", "+"}]
            yield Replacement(
                path=name,
                old="".join(line[1:] for line in lines if line[0] != "+"),
                new="".join(line[1:] for line in lines if line[0] != "-"),
            )


def _is_unique(task: Task, each: Replacement) -> bool:
    path = task.repo / each.path
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    return bool(each.old) and text.count(each.old) == 1
