"""Families of one-line functions: each has one shape and exchangeable alternatives.

On the visible input of a family all its alternatives differ, so one failed assertion (got, wanted) decides
which one is right; names and bodies do not. A test checks both.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

Arguments = tuple[Any, ...]

LETTERS = tuple("abcdnxyzpq")
LISTS = ("xs", "ys", "zs", "vals", "row")
TEXTS = ("s", "t", "word", "text", "line")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """One shape of functions; each exists once, and equals only itself.

    `body` has `{v}` for the alternative and `{0}`, `{1}` for the parameters;
    `compute(alternative, arguments)` is what a function of this family returns.
    """

    name: str
    noun: str
    """A person's word for the part that varies."""
    body: str
    parameters: tuple[str, ...]
    options: tuple[str, ...]
    visible: Arguments
    hidden: tuple[Arguments, ...]
    compute: Callable[[str, Arguments], Any]
    held_out: bool = False

    @property
    def arity(self) -> int:
        """The number of parameters of a function."""
        return 2 if "{1}" in self.body else 1

    def __reduce__(self) -> tuple[Callable[[str], "Family"], tuple[str]]:
        """Copy and pickle by name, so that another process finds its own instance."""
        return family_named, (self.name,)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
FOLDS: dict[str, Callable[[Any], Any]] = {"max": max, "min": min, "sum": sum, "len": len}

# fmt: off
OPERATOR = Family(
    name="operator", noun="operator", body="{0} {v} {1}", parameters=LETTERS, options=tuple(BINARY),
    visible=(2, 3), hidden=((7, 4), (9, 2)),
    compute=lambda option, given: BINARY[option](*given),
)
INDEX = Family(
    name="index", noun="index", body="{0}[{v}]", parameters=LISTS, options=("0", "1", "2", "-1"),
    visible=([7, 8, 9, 4],), hidden=(([1, 2, 3, 5],), ([6, 5, 3, 2],)),
    compute=lambda option, given: given[0][int(option)],
)
CONSTANT = Family(
    name="constant", noun="constant", body="{0} + {v}", parameters=LETTERS, options=tuple("234567"),
    visible=(10,), hidden=((3,), (20,)),
    compute=lambda option, given: given[0] + int(option),
)
SCALE = replace(
    CONSTANT, name="scale", noun="factor", body="{0} * {v}", held_out=True,
    compute=lambda option, given: given[0] * int(option),
)
FOLD = Family(
    name="fold", noun="call", body="{v}({0})", parameters=LISTS, options=tuple(FOLDS), held_out=True,
    visible=([7, 8, 9],), hidden=(([1, 2, 5, 9],), ([6, 5],)),
    compute=lambda option, given: FOLDS[option](given[0]),
)
METHOD = Family(
    name="method", noun="method", body="{0}.{v}()", parameters=TEXTS, held_out=True,
    options=("upper", "lower", "title", "swapcase", "capitalize"),
    visible=("ABc d",), hidden=(("pQ rs",), ("xY Zw",)),
    compute=lambda option, given: getattr(given[0], option)(),
)
# fmt: on
FAMILIES = (OPERATOR, INDEX, CONSTANT, SCALE, FOLD, METHOD)


def family_named(name: str) -> Family:
    return next(family for family in FAMILIES if family.name == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One function of a module: its present, its wanted and its visibly tested alternative."""

    name: str
    path: str
    family: Family
    parameters: tuple[str, ...]
    shown: str
    """The alternative in the repository."""
    wanted: str
    """The alternative that the hidden tests check."""
    tested: str | None
    """The alternative that the visible test checks; None without a visible test."""

    def line(self, option: str) -> str:
        """Return its only line, indentation included, with `option` in it: unique in its file."""
        return "    return " + self.family.body.format(*self.parameters, v=option)

    def source(self) -> str:
        return f"def {self.name}({', '.join(self.parameters)}):\n{self.line(self.shown)}\n"

    def assertion(self, option: str, given: Arguments) -> str:
        call = f"{self.name}({', '.join(map(repr, given))})"
        return f"    assert {call} == {self.family.compute(option, given)!r}\n"

    def visible_test(self) -> str:
        assert self.tested is not None
        return f"def test_{self.name}():\n{self.assertion(self.tested, self.family.visible)}"

    def hidden_test(self) -> str:
        lines = (self.assertion(self.wanted, given) for given in self.family.hidden)
        return f"def test_{self.name}():\n{''.join(lines)}"
