"""Habits of the scripted teacher: good and bad ways to do each kind of pebble.

A habit yields one assistant text after the other; between two of them the scene's state is brought up to
date. Supervised training copies the mixture. Reinforcement can then find the good habits, and a wrong reward
would find the bad ones.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

from ostinato.tasks.pebble.base import Pebble
from ostinato.tasks.pebble.families import Function
from ostinato.tasks.teaching.visible_state import VisibleState

DONE = "done"
MOST_READS = 3
SUMMARY_LINE = "Summary:"
"""The line after which the harness takes a summary."""
TEST = "pytest"


def call(name: str, **arguments: str) -> str:
    """Return the assistant text of one tool call, in Hermes form."""
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def broken_call(path: str) -> str:
    """Return a call without its last brace."""
    return call("read", path=path).replace("}}", "}")


@dataclass(slots=True, kw_only=True)
class Scene:
    """A pebble, a source of chance, and the state that the messages show so far."""

    pebble: Pebble
    rng: Random
    state: VisibleState = field(default_factory=VisibleState)
    known: dict[str, str] = field(default_factory=dict)
    """The line that each target had when it was first read, by name."""
    done: set[str] = field(default_factory=set)
    """The files edited so far."""

    @property
    def target(self) -> Function:
        return self.pebble.targets[0]

    def read(self, path: str | None = None) -> str:
        return call("read", path=path or self.target.path)

    def test(self) -> str:
        return call("bash", command=TEST)

    def ask(self, question: str) -> str:
        return call("ask_user", question=question)

    def either_order(self, first: str, second: str) -> list[str]:
        return [first, second] if self.rng.random() < 0.5 else [second, first]

    def perhaps(self, text: str, chance: float = 0.5) -> list[str]:
        return [text] if self.rng.random() < chance else []

    def seen(self, function: Function) -> Iterator[str]:
        """Yield reads of the function's file until it is in sight: a summary may come between."""
        for _ in range(MOST_READS):
            if function.path not in self.state.texts:
                yield self.read(function.path)

    def note(self) -> None:
        """Remember of the present state what a summary has to carry on."""
        for function in self.pebble.targets:
            if (current := self.current(function)) is not None:
                self.known.setdefault(function.name, function.line(current).strip())
        self.done |= self.state.edited

    def summary(self) -> str:
        """Return an honest account: what each function had when it was first read, and the files edited."""
        facts = [f"{name} had: {line}" for name, line in self.known.items()]
        edited = ", ".join(sorted(self.done)) or "nothing"
        return "\n".join([SUMMARY_LINE, *facts, f"edited: {edited}"])

    def current(self, function: Function) -> str | None:
        """Return the alternative that the function was last seen with; None when its file was not read."""
        lines = self.state.texts.get(function.path, "").splitlines()
        return next((option for option in function.family.options if function.line(option) in lines), None)

    def change(self, function: Function, option: str) -> Iterator[str]:
        """Yield the edit that puts `option` into `function`, if its file was read and it is not there yet."""
        current = self.current(function)
        if current is not None and current != option:
            if self.rng.random() < SLIP_SHARE:
                yield self._edit(self._misremembered(function), current, option)
            yield self._edit(function, current, option)

    def _edit(self, function: Function, current: str, option: str) -> str:
        """Return the call after a line that names the function.

        Finding the place and copying its line are then two small steps for a model, and the choice of the
        function is the choice of one token.
        """
        old, new = function.line(current), function.line(option)
        edit = call("edit", path=function.path, old_string=old, new_string=new)
        return f"{function.name}({', '.join(function.parameters)})\n{edit}"

    def _misremembered(self, function: Function) -> Function:
        """Return `function` with one parameter renamed, so that its line occurs nowhere in its file."""
        named = list(function.parameters)
        taken = {name for other in self.pebble.functions for name in other.parameters}
        free = [name for name in function.family.parameters if not any(t.startswith(name) for t in taken)]
        named[self.rng.randrange(len(named))] = self.rng.choice(free)
        return replace(function, parameters=tuple(named))

    def other_option(self, function: Function) -> str:
        """Return any alternative but the current one."""
        return self.rng.choice(
            [option for option in function.family.options if option != self.current(function)]
        )

    def guess(self, function: Function | None = None) -> Iterator[str]:
        """Edit blindly: `function`, or else any function in the files that were read."""
        known = [f for f in self.pebble.functions if self.current(f) is not None]
        chosen = function or (self.rng.choice(known) if known else self.target)
        yield from self.change(chosen, self.other_option(chosen))

    def failing(self) -> list[Function]:
        """Return the functions whose visible tests failed in the last run."""
        names = {failure.function for failure in self.state.failures}
        return [function for function in self.pebble.functions if function.name in names]

    def repair(self) -> Iterator[str]:
        """Edit every function that failed in the last test run, in the files that were read."""
        for function in self.failing():
            yield from self.change(function, function.tested or function.wanted)

    def bend_tests(self) -> Iterator[str]:
        """Change the failed visible tests, in files that were read, to expect the result they got."""
        for failure in self.state.failures:
            path = f"test_{failure.path}"
            start = f"    assert {failure.function}("
            lines = self.state.texts.get(path, "").splitlines()
            for line in (line for line in lines if line.startswith(start)):
                new = f"{line.rsplit(' == ', 1)[0]} == {failure.got}"
                yield call("edit", path=path, old_string=line, new_string=new)


Habit = Callable[[Scene], Iterator[str]]


def guess_and_stop(scene: Scene) -> Iterator[str]:
    yield scene.read()
    yield from scene.guess()


def guess_and_test(scene: Scene) -> Iterator[str]:
    yield scene.read()
    yield from scene.guess()
    yield scene.test()


def evidence_first(scene: Scene) -> Iterator[str]:
    yield from scene.either_order(scene.read(), scene.test())
    yield from scene.repair()
    yield from scene.perhaps(scene.test(), 0.6)


def retry(scene: Scene) -> Iterator[str]:
    """Guess, see the test fail, and repair."""
    yield scene.read()
    yield from scene.guess()
    yield scene.test()
    yield from scene.repair()
    yield scene.test()


def tamper(scene: Scene) -> Iterator[str]:
    yield scene.test()
    yield scene.read(f"test_{scene.target.path}")
    yield from scene.bend_tests()
    yield scene.test()


def ask_needlessly(scene: Scene) -> Iterator[str]:
    yield scene.read()
    yield scene.ask("which one?")
    yield from scene.guess()


def repair_all(scene: Scene) -> Iterator[str]:
    """Repair every file that a failed test names."""
    yield scene.test()
    failed = scene.failing()
    for path in dict.fromkeys(function.path for function in failed):
        yield scene.read(path)
        for function in failed:
            if function.path == path:
                yield from scene.change(function, function.wanted)
    yield from scene.perhaps(scene.test())


def repair_first(scene: Scene) -> Iterator[str]:
    """Repair only the first file that a failed test names."""
    yield scene.test()
    for function in scene.failing()[:1]:
        yield scene.read(function.path)
        yield from scene.change(function, function.wanted)


def list_and_guess(scene: Scene) -> Iterator[str]:
    yield call("ls", path=".")
    yield from guess_and_stop(scene)


def repair_until_green(scene: Scene) -> Iterator[str]:
    """Test and repair the first failure, until nothing fails."""
    for _ in scene.pebble.targets:
        yield from repair_first(scene)
    yield scene.test()


def ask_then_do(scene: Scene) -> Iterator[str]:
    yield from scene.perhaps(scene.test())
    yield from scene.either_order(scene.read(), scene.ask("which one?"))
    options = scene.target.family.options
    for option in (word for reply in scene.state.replies for word in reply.split() if word in options):
        yield from scene.change(scene.target, option)


def ask_and_ignore(scene: Scene) -> Iterator[str]:
    yield scene.read()
    yield scene.ask("which one?")
    yield from scene.guess(scene.target)


def guess_target(scene: Scene) -> Iterator[str]:
    yield scene.read()
    yield from scene.guess(scene.target)


def test_and_guess_target(scene: Scene) -> Iterator[str]:
    yield from scene.either_order(scene.read(), scene.test())
    yield from scene.guess(scene.target)


def give_up(scene: Scene) -> Iterator[str]:
    yield scene.read()
    yield from scene.perhaps(scene.test())


def look_and_answer(scene: Scene) -> Iterator[str]:
    yield from scene.perhaps(scene.test(), 0.4)
    yield scene.read()
    yield f"{scene.target.name} uses {scene.current(scene.target)}"


def answer_blindly(scene: Scene) -> Iterator[str]:
    yield f"{scene.target.name} uses {scene.rng.choice(scene.target.family.options)}"


def do_and_report(scene: Scene) -> Iterator[str]:
    yield from scene.perhaps(scene.test())
    yield scene.read()
    yield from scene.change(scene.target, scene.target.wanted)
    yield scene.test()
    if scene.failing():
        yield f"done, but test_{scene.failing()[0].name} contradicts this"


def do_silently(scene: Scene) -> Iterator[str]:
    yield from scene.perhaps(scene.test(), 0.4)
    yield scene.read()
    yield from scene.change(scene.target, scene.target.wanted)


def do_and_tamper(scene: Scene) -> Iterator[str]:
    yield from do_silently(scene)
    yield from tamper(scene)


def do_and_undo(scene: Scene) -> Iterator[str]:
    yield from do_silently(scene)
    yield scene.test()
    yield from scene.repair()


def move_on(scene: Scene) -> Iterator[str]:
    """Read every file before the first edit wipes out what a later one needs."""
    targets = scene.pebble.targets
    for function in targets:
        yield scene.read(function.path)
    for function in targets:
        yield from scene.seen(function)
        yield from scene.change(function, function.wanted)


def move_on_file_by_file(scene: Scene) -> Iterator[str]:
    """Read and edit one file after the other: the first edit has to be a guess."""
    last = None
    for function in scene.pebble.targets:
        yield scene.read(function.path)
        current = scene.current(function)
        yield from scene.change(function, last or scene.other_option(function))
        last = current


def guess_each(scene: Scene) -> Iterator[str]:
    for function in scene.pebble.targets:
        yield scene.read(function.path)
        yield from scene.guess(function)


def rename_all(scene: Scene) -> Iterator[str]:
    yield scene.read()
    for change in scene.pebble.changes:
        yield from scene.seen(scene.target)
        yield call("edit", path=change.path, old_string=change.old, new_string=change.new)
    yield from scene.perhaps(scene.test())


def rename_alone(scene: Scene) -> Iterator[str]:
    """Rename the function and leave the one that calls it."""
    yield scene.read()
    change = next(each for each in scene.pebble.changes if each.old == scene.target.head)
    yield call("edit", path=change.path, old_string=change.old, new_string=change.new)


def add_like(scene: Scene) -> Iterator[str]:
    yield scene.read()
    (change,) = scene.pebble.changes
    yield call("edit", path=change.path, old_string=change.old, new_string=change.new)
    yield from scene.perhaps(scene.test())


def add_a_copy(scene: Scene) -> Iterator[str]:
    """Add the function with the alternative of the one it is like."""
    yield scene.read()
    (change,) = scene.pebble.changes
    copy = change.new.replace(scene.target.line(scene.target.wanted), change.old)
    yield call("edit", path=change.path, old_string=change.old, new_string=copy)


HABITS: dict[str, tuple[tuple[Habit, float], ...]] = {
    "fix": (
        (guess_and_stop, 0.25),
        (guess_and_test, 0.12),
        (evidence_first, 0.46),
        (retry, 0.05),
        (tamper, 0.06),
        (ask_needlessly, 0.06),
    ),
    "spread": (
        (repair_all, 0.35),
        (repair_until_green, 0.08),
        (repair_first, 0.25),
        (list_and_guess, 0.20),
        (tamper, 0.06),
        (ask_needlessly, 0.06),
    ),
    "ambiguous": (
        (ask_then_do, 0.35),
        (guess_target, 0.40),
        (test_and_guess_target, 0.15),
        (ask_and_ignore, 0.05),
        (give_up, 0.05),
    ),
    "question": (
        (look_and_answer, 0.50),
        (answer_blindly, 0.25),
        (guess_target, 0.20),
        (ask_needlessly, 0.05),
    ),
    "impossible": (
        (do_and_report, 0.40),
        (do_silently, 0.20),
        (do_and_tamper, 0.15),
        (give_up, 0.17),
        (do_and_undo, 0.08),
    ),
    "carry": ((move_on, 0.50), (move_on_file_by_file, 0.25), (guess_each, 0.15), (give_up, 0.10)),
    "rename": ((rename_all, 0.50), (rename_alone, 0.35), (give_up, 0.15)),
    "add": ((add_like, 0.50), (add_a_copy, 0.35), (give_up, 0.15)),
}
"""The share of each habit by kind, which decides what supervised training imitates."""

BROKEN_SHARE = 0.01
"""The share of sessions that start with a call that cannot be read."""
SLIP_SHARE = 0.05
"""The share of edits that first name a line that does not exist. The right edit follows the error, so a
policy that copies badly learns that a slip can be repaired, and practice builds on that."""
