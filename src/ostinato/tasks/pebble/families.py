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
    late: tuple[str, ...] = ()
    """The options that came after the first measurements. Most repairs with one of them are held out, and the
    repairs among the others stay on the side on which they were."""

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
    "|": operator.or_,
}
FOLDS: dict[str, Callable[[Any], Any]] = {"max": max, "min": min, "sum": sum, "len": len}

# fmt: off
OPERATOR = Family(
    name="operator", noun="operator", body="{0} {v} {1}", parameters=LETTERS, options=tuple(BINARY),
    late=("|",), visible=(2, 3), hidden=((7, 4), (9, 2)),
    compute=lambda option, given: BINARY[option](*given),
)
INDEX = Family(
    name="index", noun="index", body="{0}[{v}]", parameters=LISTS, options=("0", "1", "2", "-1", "-2"),
    late=("-2",), visible=([7, 8, 9, 4, 6],), hidden=(([1, 2, 3, 5, 8],), ([6, 5, 3, 2, 9],)),
    compute=lambda option, given: given[0][int(option)],
)
CONSTANT = Family(
    name="constant", noun="constant", body="{0} + {v}", parameters=LETTERS, options=tuple("2345678"),
    late=("8",), visible=(10,), hidden=((3,), (20,)),
    compute=lambda option, given: given[0] + int(option),
)
SCALE = replace(
    CONSTANT, name="scale", noun="factor", body="{0} * {v}", held_out=True, late=(),
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
Compute = Callable[[Any, Any], Any]
DIGITS, PLACES, ENDS = tuple("234567"), tuple("1234"), tuple("abcd")


def _number(name: str, body: str, visible: int, hidden: tuple[int, int], compute: Compute) -> Family:
    """Return a held-out shape of one number and a constant from 2 to 7."""
    return Family(
        name=name, noun="constant", body=body, parameters=LETTERS, options=DIGITS, held_out=True,
        visible=(visible,), hidden=tuple((given,) for given in hidden),
        compute=lambda option, given: compute(given[0], int(option)),
    )


def _list(
    name: str, body: str, options: tuple[str, ...], inputs: tuple[list[int], list[int], list[int]],
    compute: Compute,
) -> Family:
    """Return a held-out shape of one list and a number; the first of its inputs is the visible one."""
    visible, *hidden = inputs
    return Family(
        name=name, noun="number", body=body, parameters=LISTS, options=options, held_out=True,
        visible=(visible,), hidden=tuple((given,) for given in hidden),
        compute=lambda option, given: compute(given[0], int(option)),
    )


def _text(name: str, body: str, visible: str, hidden: tuple[str, str], compute: Compute) -> Family:
    """Return a held-out shape of one text and a letter from a to d."""
    return Family(
        name=name, noun="letter", body=body, parameters=TEXTS, options=ENDS, held_out=True,
        visible=(visible,), hidden=tuple((given,) for given in hidden),
        compute=lambda option, given: compute(given[0], option),
    )


SHAPES = (
    _number("minus", "{0} - {v}", 10, (3, 20), lambda x, n: x - n),
    _number("from", "{v} - {0}", 10, (3, 20), lambda x, n: n - x),
    _number("power", "{0} ** {v}", 2, (3, 5), lambda x, n: x**n),
    _number("base", "{v} ** {0}", 2, (3, 1), lambda x, n: n**x),
    _number("rest", "{0} % {v}", 419, (839, 59), lambda x, n: x % n),
    _number("part", "{0} // {v}", 420, (840, 1260), lambda x, n: x // n),
    _number("shift", "{0} << {v}", 1, (3, 5), lambda x, n: x << n),
    _number("xor", "{0} ^ {v}", 8, (16, 24), lambda x, n: x ^ n),
    _number("either", "{0} | {v}", 8, (16, 24), lambda x, n: x | n),
    _number("least", "max({0}, {v})", 1, (0, -3), max),
    _number("most", "min({0}, {v})", 10, (20, 30), min),
    _number("both", "divmod({0}, {v})", 420, (840, 59), divmod),
    _number("run", "list(range({0}, {0} + {v}))", 1, (3, 5), lambda x, n: list(range(x, x + n))),
    _number("far", "abs({0} - {v})", 10, (20, 30), lambda x, n: abs(x - n)),
    _number("below", "-{0} * {v}", 10, (3, 20), lambda x, n: -x * n),
    _number("grown", "{0} + {v} * {0}", 10, (3, 20), lambda x, n: x + n * x),
    _list("head", "{0}[:{v}]", PLACES, ([7, 8, 9, 4, 6], [1, 2, 3, 5, 8], [6, 5, 3, 2, 9]),
          lambda xs, n: xs[:n]),
    _list("tail", "{0}[{v}:]", PLACES, ([7, 8, 9, 4, 6], [1, 2, 3, 5, 8], [6, 5, 3, 2, 9]),
          lambda xs, n: xs[n:]),
    _list("stride", "{0}[::{v}]", PLACES, ([7, 8, 9, 4, 6], [1, 2, 3, 5, 8], [6, 5, 3, 2, 9]),
          lambda xs, n: xs[::n]),
    _list("again", "{0} * {v}", PLACES, ([7], [1, 2], [5]), lambda xs, n: xs * n),
    _list("ended", "{0} + [{v}]", DIGITS, ([9], [1], [8, 9]), lambda xs, n: [*xs, n]),
    _list("begun", "[{v}] + {0}", DIGITS, ([9], [1], [8, 9]), lambda xs, n: [n, *xs]),
    _list("count", "{0}.count({v})", PLACES, ([2, 3, 3, 4, 4, 4], [1, 1, 2, 4, 4, 4], [1, 2, 2, 3, 3, 3]),
          lambda xs, n: xs.count(n)),
    _list("place", "{0}.index({v})", DIGITS, ([5, 2, 3, 4, 7, 6], [2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2]),
          lambda xs, n: xs.index(n)),
    _list("rank", "sorted({0})[-{v}]", PLACES, ([9, 7, 8, 4], [1, 3, 2, 5], [6, 2, 9, 8]),
          lambda xs, n: sorted(xs)[-n]),
    _text("find", '{0}.find("{v}")', "dbca", ("abcd", "cadb"), lambda s, c: s.find(c)),
    _text("drop", '{0}.replace("{v}", "")', "dbca", ("abcd", "cadb"), lambda s, c: s.replace(c, "")),
    _text("letters", '{0}.count("{v}")', "abbcccdddd", ("aabccc", "ddcb"), lambda s, c: s.count(c)),
    _text("suffix", '{0} + "{v}"', "x", ("y", "zz"), lambda s, c: s + c),
    _text("prefix", '"{v}" + {0}', "x", ("y", "zz"), lambda s, c: c + s),
)
"""Shapes that are never practised, whose number makes the split `families` worth an interval."""
FAMILIES = (OPERATOR, INDEX, CONSTANT, SCALE, FOLD, METHOD, *SHAPES)
# fmt: on


def _no_value(option: str, given: Arguments) -> Any:
    raise AssertionError(f"a function that calls {option} has the value of that function")


CALLS = tuple(
    Family(
        name=f"call{len(parameters)}",
        noun="function",
        body=f"{{v}}({', '.join(parameters)})",
        parameters=LETTERS,
        options=(),
        visible=(),
        hidden=(),
        compute=_no_value,
    )
    for parameters in (("{0}",), ("{0}", "{1}"))
)
"""The shapes of a function that calls another one, whose name is the part that varies."""


def family_named(name: str) -> Family:
    return next(family for family in (*FAMILIES, *CALLS) if family.name == name)


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
    new_name: str = ""
    """The name that it is to have; empty when it keeps its own."""
    beside: "Function | None" = None
    """The function below which this one is to be added: it is not in the repository yet."""
    callee: "Function | None" = None
    """The function that this one calls, and whose value it has."""

    @property
    def final(self) -> str:
        """The name that it has in a right solution."""
        return self.new_name or self.name

    @property
    def head(self) -> str:
        return self._head(self.name)

    @property
    def new_head(self) -> str:
        return self._head(self.final)

    def _head(self, name: str) -> str:
        return f"def {name}({', '.join(self.parameters)}):"

    def line(self, option: str) -> str:
        """Return its only line, indentation included, with `option` in it: unique in its file."""
        return "    return " + self.family.body.format(*self.parameters, v=option)

    def source(self) -> str:
        return f"{self.head}\n{self.line(self.shown)}\n"

    def assertion(self, option: str, given: Arguments) -> str:
        call = f"{self.final}({', '.join(map(repr, given))})"
        maker, choice = (self, option) if self.callee is None else (self.callee, self.callee.wanted)
        return f"    assert {call} == {maker.family.compute(choice, given)!r}\n"

    def visible_test(self) -> str:
        assert self.tested is not None
        inputs = (self.callee or self).family
        return f"def test_{self.final}():\n{self.assertion(self.tested, inputs.visible)}"

    def hidden_test(self) -> str:
        inputs = (self.callee or self).family
        lines = (self.assertion(self.wanted, given) for given in inputs.hidden)
        return f"def test_{self.final}():\n{''.join(lines)}"
