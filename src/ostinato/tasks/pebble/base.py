"""A pebble: a very small repository with one thing to do, held in memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ostinato.tasks.pebble.families import Function

FILES = ("calc.py", "util.py", "core.py", "ops.py")
PYPROJECT = """[tool.pytest.ini_options]
addopts = "-qq --tb=no -p no:cacheprovider"
console_output_style = "classic"
"""
IGNORE = "__pycache__/\n"


class LineChange(NamedTuple):
    """The replacement of the line `old`, which occurs once in `path`, by `new`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pebble:
    """One task with everything known about it, the right answer included."""

    kind: str
    split: str
    seed: int
    key: str
    """Hash of the problem itself: names, families and alternatives in order, not the wording."""
    instruction: str
    functions: tuple[Function, ...]
    targets: tuple[Function, ...]
    """The functions that the instruction is about."""
    answer: str | None = None
    """The answer to a question; None when the task asks nothing."""

    @property
    def id(self) -> str:
        return f"pebble-{self.kind}-{self.split}-{self.seed}"

    @property
    def paths(self) -> tuple[str, ...]:
        """The modules, in the order of their first function."""
        return tuple(dict.fromkeys(function.path for function in self.functions))

    @property
    def changes(self) -> tuple[LineChange, ...]:
        """The changes of a right solution to the repository; empty for a question."""
        return tuple(change for function in self.functions for change in _changes(function))

    @property
    def needs(self) -> dict[str, int]:
        """The number of lines that a right solution changes, by path."""
        needed: dict[str, int] = {}
        for change in self.changes:
            needed[change.path] = needed.get(change.path, 0) + change.new.count("\n") + 1
        return needed

    @property
    def cluster(self) -> str:
        """The name of its cluster: pebbles of a split that share what the split holds out are one cluster.

        In `names` it is the name of the first target, in `families` its family, in `pairs` its family and
        repair, and in any other split all of these.
        """
        target = self.targets[0]
        parts = {"names": target.name, "families": target.family.name}
        repair = "/".join((target.family.name, target.shown, target.wanted))
        return parts.get(self.split, repair if self.split == "pairs" else f"{target.name}/{repair}")

    @property
    def protected(self) -> tuple[str, ...]:
        return (*(f"test_{path}" for path in self.paths), "pyproject.toml", ".gitignore")

    @property
    def test_ids(self) -> tuple[str, ...]:
        names = [function.final for function in self.functions]
        names += [f"{function.name}_is_gone" for function in self.functions if function.new_name]
        return tuple(f"test_hidden.py::test_{name}" for name in names)

    @property
    def files(self) -> dict[str, str]:
        """The repository: name -> text."""
        modules = {path: _module(self._of(path)) for path in self.paths}
        tests = {f"test_{path}": _visible(path, self._of(path)) for path in self.paths}
        return {**modules, **tests, "pyproject.toml": PYPROJECT, ".gitignore": IGNORE}

    @property
    def hidden(self) -> str:
        """Text of `tests/test_hidden.py`: one test per function, on other inputs than the visible test."""
        imports = "".join(_import(path, self._of(path)) for path in self.paths)
        gone = [_gone_test(function) for function in self.functions if function.new_name]
        return "\n\n".join([imports, *(function.hidden_test() for function in self.functions), *gone])

    @property
    def intent(self) -> Mapping[str, object]:
        """The intent card: the meaning of the request, which the person states only when asked."""
        target = self.targets[0]
        return {
            "function": target.name,
            "wants": target.wanted,
            "reply": _REPLIES.get(self.kind, f"use {target.wanted}"),
            "options": list(target.family.options),
            "decidable": self.kind != "ambiguous",
            "reports": [f"test_{f.name}" for f in self.targets] if self.kind == "impossible" else [],
        }

    def _of(self, path: str) -> list[Function]:
        return [function for function in self.functions if function.path == path]


_REPLIES = {
    **{"fix": "see the tests", "spread": "see the tests", "question": "just look"},
    **{"carry": "as I said", "rename": "as I said", "add": "as I said"},
}


def _changes(function: Function) -> list[LineChange]:
    """Return the changes that one function needs."""
    if function.beside is not None:
        line = function.beside.line(function.beside.shown)
        added = f"{function.new_head}\n{function.line(function.wanted)}"
        return [LineChange(path=function.path, old=line, new=f"{line}\n\n\n{added}")]
    changes = []
    if function.new_name:
        changes.append(LineChange(path=function.path, old=function.head, new=function.new_head))
    if function.shown != function.wanted:
        line = function.line(function.shown)
        changes.append(LineChange(path=function.path, old=line, new=function.line(function.wanted)))
    return changes


def _gone_test(function: Function) -> str:
    """Return the hidden test that a renamed function no longer has its old name."""
    module = function.path.removesuffix(".py")
    body = f"    import {module}\n\n    assert not hasattr({module}, {function.name!r})\n"
    return f"def test_{function.name}_is_gone():\n{body}"


def _module(functions: list[Function]) -> str:
    return "\n\n".join(function.source() for function in functions if function.beside is None)


def _import(path: str, functions: list[Function]) -> str:
    return f"from {path.removesuffix('.py')} import {', '.join(f.final for f in functions)}\n"


def _visible(path: str, functions: list[Function]) -> str:
    tested = [function for function in functions if function.tested is not None]
    return "\n\n".join([_import(path, tested), *(function.visible_test() for function in tested)])
