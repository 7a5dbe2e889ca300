"""The origin of each value of a hidden test: its own, or the candidate's."""

import ast
import builtins
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

T = TypeVar("T")
DEPTH, CALLS = 8, 20_000
"""The numbers of calls of the tests' own functions that are followed into one another, and in all."""
_IMPORTS = {"import_module", "__import__", "importorskip"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Origin(IntEnum):
    """The place that a value comes from."""

    TEST = 0
    ANSWER = 1
    """The candidate's code made it, of values of the test."""
    JUDGEMENT = 2
    """The candidate's code made it of answers of its own, as a comparison of its own would."""


@dataclass(frozen=True, slots=True)
class Own:
    """A function, a class or a module of the tests' own, with the names that it sees."""

    node: ast.AST
    names: "Names"

    def attribute(self, name: str) -> "Value":
        """Return a name of a module, or a method of a class."""
        if isinstance(self.node, ast.Module):
            return self.names.get(name, self.names["*"])
        methods = [each for each in getattr(self.node, "body", ()) if isinstance(each, FUNCTIONS)]
        return next((Own(each, self.names) for each in methods if each.name == name), Origin.TEST)


Value = Origin | Own
Names = dict[str, Value]
"""The meaning of each name; `*` is what a name means that is nowhere, after a `from … import *`."""


class Values(ABC):
    """A reader of expressions, which follows calls of the tests' own functions."""

    def __init__(self) -> None:
        self._returned: list[tuple[ast.expr, Names]] = []
        self._depth = self._calls = 0
        self.lent: set[str] = set()
        """The names that the candidate's code was given, whose values it may have changed or used."""

    @abstractmethod
    def body(self, body: Iterable[ast.stmt], names: Names) -> None:
        """Read statements."""

    @abstractmethod
    def origin_of_module(self, name: ast.expr | None) -> Origin:
        """Return where the module of a name comes from that is no statement's."""

    def origin(self, node: ast.AST | None, names: Names) -> Origin:
        value = self.value(node, names)
        return Origin.TEST if isinstance(value, Own) else value

    def value(self, node: ast.AST | None, names: Names) -> Value:
        """Return the origin of an expression, or which of the tests' own functions it is."""
        match node:
            case ast.Name():
                return names.get(node.id, Origin.TEST if hasattr(builtins, node.id) else names["*"])
            case ast.Attribute():
                if (known := names.get(_place(node))) is not None:
                    return known
                owner = self.value(node.value, names)
                return owner.attribute(node.attr) if isinstance(owner, Own) else owner
            case ast.Call():
                return self._call(node, names)
            case ast.Subscript() if ast.unparse(node.value) == "sys.modules":
                return self.origin_of_module(node.slice)
            case ast.Lambda():
                return self.origin(node.body, names | dict.fromkeys(parameters(node.args), Origin.TEST))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                inner = dict(names)
                many = [self.bound(each, inner) for each in node.generators]
                made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
                return max((*many, *(self.origin(each, inner) for each in made)))
            case ast.NamedExpr():
                value = self.value(node.value, names)
                self.bind(node.target, value, names)
                return value
            case ast.Yield() if node.value is not None:
                self._returned.append((node.value, names))
        below = ast.iter_child_nodes(node) if node is not None else ()
        inside = [each.value if isinstance(each, ast.keyword) else each for each in below]
        return max(
            (self.origin(each, names) for each in inside if isinstance(each, ast.expr)), default=Origin.TEST
        )

    def _call(self, node: ast.Call, names: Names) -> Origin:
        called = self.value(node.func, names)
        if last(node.func) in _IMPORTS:
            return self.origin_of_module(node.args[0] if node.args else None)
        if isinstance(called, Own):
            return max(self.follow(called, node, names, self.origin), default=Origin.TEST)
        given = max((self.origin(each, names) for each in arguments(node)), default=Origin.TEST)
        if called:
            self.lent.update(each.id for each in arguments(node) if isinstance(each, ast.Name))
        return given if not called else Origin.JUDGEMENT if given else called

    def bound(self, each: ast.comprehension, names: Names) -> Origin:
        """Bind what a comprehension runs over; return where that, or which of it, comes from."""
        origin = self.origin(each.iter, names)
        self.bind(each.target, origin, names)
        return max((origin, *(self.origin(test, names) for test in each.ifs)))

    def bind(self, target: ast.expr, value: Value, names: Names, *, whole: bool = True) -> None:
        """Bind names; a container of which a part is set is the candidate's where the part is."""
        match target:
            case ast.Name() | ast.Attribute(value=ast.Name(id="self" | "cls")):
                if whole or (value and not isinstance(value, Own)):
                    names[_place(target)] = value
            case ast.Tuple() | ast.List():
                for each in target.elts:
                    self.bind(each, value, names, whole=whole)
            case ast.Starred() | ast.Subscript() | ast.Attribute():
                self.bind(target.value, value, names, whole=False)

    def returns(self, node: ast.expr, names: Names) -> None:
        """Take down what the function returns that is followed."""
        self._returned.append((node, names))

    def follow(
        self, own: Own, call: ast.Call | None, names: Names, see: Callable[[ast.expr, Names], T]
    ) -> list[T]:
        """Read a function of the tests' own with what a call gives it, and return what `see` finds in it.

        Of a class, and of what is not followed, that is what it is given. Raises ValueError after too many.
        """
        self._calls += 1
        if self._calls > CALLS:
            raise ValueError(f"their own functions call one another more than {CALLS} times")
        if not isinstance(own.node, FUNCTIONS) or self._depth >= DEPTH:
            return [see(each, names) for each in arguments(call)] if call is not None else []
        inner: Names = own.names | dict.fromkeys(parameters(own.node.args), Origin.TEST)
        if call is not None:
            free = [each for each in parameters(own.node.args) if each not in ("self", "cls")]
            given = [self.value(each, names) for each in call.args]
            inner |= dict(zip(free, given, strict=False))
            if free and len(given) > len(free):
                inner[free[-1]] = max(self.origin(each, names) for each in call.args)
            inner |= {each.arg: self.value(each.value, names) for each in call.keywords if each.arg}
        before, self._returned, self._depth = self._returned, [], self._depth + 1
        self.body(own.node.body, inner)
        seen = [see(*each) for each in self._returned]
        self._returned, self._depth = before, self._depth - 1
        return seen


def arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(each.value for each in call.keywords)]


def _place(node: ast.Name | ast.Attribute) -> str:
    """Return the name of a name, or of an attribute of a test's class."""
    if isinstance(node, ast.Name):
        return node.id
    return f"self.{node.attr}" if ast.unparse(node.value) in ("self", "cls") else ""


def parameters(signature: ast.arguments) -> list[str]:
    return [each.arg for each in ast.walk(signature) if isinstance(each, ast.arg)]


def last(function: ast.expr) -> str:
    """Return the last name of what is called."""
    return ast.unparse(function).rpartition(".")[2]


def root(node: ast.expr) -> ast.expr:
    """Return what an attribute, an item or a call begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node
