"""The one who decides an asserted expression: the judge, the candidate, or nobody.

Nobody decides by the truth of an answer alone, since any code can answer "true" without knowing what a test
expects; answers of one function that must be true here and false there are the judge's to decide.
"""

import ast
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial

from ostinato.assertions.values import Names, Origin, Own, Values, last, root

_KINDS = {"isinstance", "issubclass", "assertIsInstance", "assertNotIsInstance"}
_GUESSED = {"None", "0", "1", "-1", "''", "[]", "{}", "()", "set()"}
"""The answers that a comparison of the candidate's own could give without knowing what a test expects."""
_CONTENT = {"map", "filter", "starmap", "list", "tuple", "set", "sorted", "next", "max", "min", "sum", "len"}
"""Functions of Python whose result is true where what the candidate's code answered is."""
_JUDGES = "the code under test judges its own answers"
_BOTH = "both sides of a comparison come from the code under test"


class Holds(IntEnum):
    """The one who decides an assertion."""

    NOBODY = 0
    JUDGE = 1
    CANDIDATE = 2


Decided = tuple[Holds, str]
"""The one who decides an assertion, and of the candidate the reason."""
NOBODY: Decided = (Holds.NOBODY, "")
JUDGE: Decided = (Holds.JUDGE, "")


@dataclass(slots=True)
class Found:
    """The findings in one test."""

    held: bool = False
    """The judge decides an assertion of it."""
    truths: set[tuple[str, bool]] = field(default_factory=set)
    """The functions of the candidate whose answer must be true, or false."""
    faults: list[tuple[int, str]] = field(default_factory=list)
    """The lines that the candidate decides, and why."""


class Decisions(Values):
    """A reader of asserted expressions."""

    def __init__(self) -> None:
        super().__init__()
        self.found = Found()

    def decided(self, node: ast.expr, names: Names, *, wanted: bool = True) -> Decided:
        """Return who decides that an expression is true, or false where that is `wanted`."""
        match node:
            case ast.Await():
                return self.decided(node.value, names, wanted=wanted)
            case ast.UnaryOp(op=ast.Not()):
                return self.decided(node.operand, names, wanted=not wanted)
            case ast.BoolOp():
                parts = [self.decided(each, names, wanted=wanted) for each in node.values]
                asked = [self.origin(each, names) for each in node.values]
                idle = any(a and kind is Holds.NOBODY for a, (kind, _) in zip(asked, parts, strict=True))
                one_is_enough = isinstance(node.op, ast.Or) is wanted
                return max(NOBODY if one_is_enough and idle and part is JUDGE else part for part in parts)
            case ast.IfExp():
                if self.origin(node.test, names):
                    return Holds.CANDIDATE, "the code under test says what is asserted"
                return max(self.decided(each, names, wanted=wanted) for each in (node.body, node.orelse))
            case ast.Compare():
                return self._chain(node, names, wanted=wanted)
            case ast.Call():
                return self._called(node, names, wanted=wanted)
        return self._truth(node, names, wanted=wanted)

    def _truth(self, node: ast.expr, names: Names, *, wanted: bool) -> Decided:
        origin = self.origin(node, names)
        if origin is Origin.JUDGEMENT:
            return Holds.CANDIDATE, _JUDGES
        function = node.func if isinstance(node, ast.Call) else node
        if origin and isinstance(node, ast.Call | ast.Attribute):
            self.found.truths.add((last(function), wanted))
        return NOBODY

    def _chain(self, node: ast.Compare, names: Names, *, wanted: bool) -> Decided:
        """Return who decides a comparison; a chain of equals is held by any value of the test's in it."""
        sides = [node.left, *node.comparators]
        origins = [self.origin(each, names) for each in sides]
        equal = wanted and len(sides) > 2 and all(isinstance(op, ast.Eq | ast.Is) for op in node.ops)
        if equal and any(origins) and Origin.TEST in origins:
            return JUDGE
        pairs = zip(sides, node.ops, node.comparators, strict=False)
        return max(self._compared(*each, names, wanted=wanted) for each in pairs)

    def _compared(
        self, left: ast.expr, op: ast.cmpop, right: ast.expr, names: Names, *, wanted: bool = True
    ) -> Decided:
        origins = self.origin(left, names), self.origin(right, names)
        if not any(origins):
            return JUDGE if self.lent & {*map(ast.unparse, ast.walk(left))} else NOBODY
        if all(origins):
            kinds = any(isinstance(each, ast.Call) and last(each.func) == "type" for each in (left, right))
            return NOBODY if kinds or isinstance(op, ast.Is | ast.IsNot) else (Holds.CANDIDATE, _BOTH)
        asked, known = (left, right) if origins[0] else (right, left)
        value = known.value if isinstance(known, ast.Constant) else None
        if isinstance(value, bool):
            unequal = isinstance(op, ast.NotEq | ast.IsNot)
            return self.decided(asked, names, wanted=wanted is (value is not unequal))
        if max(origins) is Origin.JUDGEMENT and ast.unparse(known) in _GUESSED:
            return Holds.CANDIDATE, _JUDGES
        return NOBODY if isinstance(op, ast.IsNot) else JUDGE

    def _called(self, node: ast.Call, names: Names, *, wanted: bool) -> Decided:
        """Return who decides what a call returns or, of a function that asserts, that it returns."""
        called = self.value(node.func, names)
        if isinstance(called, Own):
            decide = partial(self.decided, wanted=wanted)
            return max(self.follow(called, node, names, decide), default=NOBODY)
        if called or last(node.func) in _CONTENT:
            return self._truth(node, names, wanted=wanted)
        return self._by_name(last(node.func), node, names, wanted=wanted)

    def _by_name(self, name: str, node: ast.Call, names: Names, *, wanted: bool) -> Decided:
        """Return what a function of Python, of pytest or of the tests' own decides about its arguments."""
        given = [self.origin(each, names) for each in node.args]
        first = node.args[0] if node.args else None
        if name in ("all", "any") and isinstance(first, ast.GeneratorExp | ast.ListComp):
            return self._each(first, names, wanted=wanted)
        if name in _KINDS:
            self.found.truths |= {("a class", wanted is ("Not" not in name))} if any(given[1:]) else set()
            return JUDGE if any(given[:1]) and not any(given[1:]) else NOBODY
        if name.startswith("assertRaises") or name == "raises":
            own = [isinstance(self.value(each, names), Own) for each in node.args[1:]]
            return JUDGE if any((*given[1:], *own)) and not given[0] else NOBODY
        if name.startswith("assert_") and not any(given):  # of a mock of the test's own
            return JUDGE if ast.unparse(root(node.func)) in self.lent else NOBODY
        if name in ("assertTrue", "assertFalse") and first is not None:
            return self.decided(first, names, wanted=wanted is not (name == "assertFalse"))
        if name in ("hasattr", "callable", "assertIsNone"):
            return JUDGE if any(given) else NOBODY
        if name.startswith("assert") and len(given) > 1:
            return self._compared(node.args[0], ast.Eq(), node.args[1], names, wanted=wanted)
        of_value = isinstance(node.func, ast.Attribute) and not isinstance(root(node.func), ast.Name)
        match sum(map(bool, given)), len(given) + of_value:
            case 0, _:
                return NOBODY
            case 1, 1 if first is not None:
                return self.decided(first, names, wanted=wanted)
            case 1, _:
                return JUDGE
        return Holds.CANDIDATE, _BOTH

    def _each(self, node: ast.GeneratorExp | ast.ListComp, names: Names, *, wanted: bool) -> Decided:
        """Return who decides about each item: nobody, where the candidate may answer without any item."""
        inner = dict(names)
        many = max(self.bound(each, inner) for each in node.generators)
        decided = self.decided(node.elt, inner, wanted=wanted)
        return NOBODY if many and decided is JUDGE else decided
