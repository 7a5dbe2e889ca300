"""Faults that are injected into a function: small changes of its text that a person could have made.

A fault replaces a part of the text and leaves the rest as it is, so that the reference solution is a small
diff. Only the tests decide if it matters.
"""

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from ostinato.mining.python_source import PythonSource, PythonSourceError

Function = ast.FunctionDef | ast.AsyncFunctionDef
OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "%"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "//"),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
MAX_BODY = 12
"""Lines of the longest function whose body may be removed; a longer one is a project, not a task."""
MAX_CONSTANT = 1000
NEWLINE = frozenset("\r\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One change of one function.

    >>> Fault(kind="operator", path="a.py", function="f", line=2, first_line=1, data=b"...", words="+").kind
    'operator'
    """

    kind: str
    path: str
    function: str
    """The qualified name of the function."""
    line: int
    first_line: int
    """The first line of the function, decorators included, as its code object has it."""
    data: bytes
    """The whole file with the fault."""
    words: str
    """The part that was replaced, for the evidence."""


class Text:
    """A source file, with offsets into it by the positions of its syntax tree."""

    def __init__(self, source: PythonSource) -> None:
        self.source = source.text
        self.lines = source.lines
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a position; its column counts bytes of UTF-8."""
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        return (
            self.offset(node.lineno, node.col_offset),
            self.offset(node.end_lineno or node.lineno, node.end_col_offset or 0),
        )

    def of(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.source[start:end]


Change = tuple[int, int, str, int]
"""The start and end of the part to replace, the text in its place, and the line."""


def faults(path: str, source: PythonSource) -> list[Fault]:
    """Return every fault of every function in a file, in the order of the text.

    Raise PythonSourceError for a file that is no Python.
    """
    tree, text, found = source.tree(), Text(source), list[Fault]()
    for name, function in _functions(tree, ""):
        first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
        for kind, find in KINDS.items():
            for start, end, instead, line in find(text, function):
                changed = source.with_text(text.source[:start] + instead + text.source[end:])
                if changed == source:
                    continue
                with suppress(PythonSourceError):
                    changed.tree()
                    fault = Fault(
                        kind=kind,
                        path=path,
                        function=name,
                        line=line,
                        first_line=first,
                        data=changed.encoded(),
                        words=text.source[start:end][:200],
                    )
                    found.append(fault)
    return found


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    """Yield the functions of a module and its classes, with their qualified names; nested ones are theirs."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.If | ast.Try):
            yield from _functions(child, prefix)


def _inside(function: Function) -> Iterator[ast.AST]:
    """Yield the nodes of the body, without the docstring and without annotations."""
    for statement in _body(function):
        yield from ast.walk(statement)


def _body(function: Function) -> list[ast.stmt]:
    return function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body


def _operators(text: Text, function: Function) -> Iterator[Change]:
    operator: ast.AST
    for node in _inside(function):
        if isinstance(node, ast.BinOp):
            left, operator, right = node.left, node.op, node.right
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, operator, right = node.left, node.ops[0], node.comparators[0]
        elif isinstance(node, ast.BoolOp) and len(node.values) == 2:
            left, operator, right = node.values[0], node.op, node.values[1]
        else:
            continue
        if type(operator) in OPERATORS:
            before, after = OPERATORS[type(operator)]
            start, end = text.span(left)[1], text.span(right)[0]
            between = text.source[start:end]
            if between.strip(" ()") == before and NEWLINE.isdisjoint(between):
                at = start + between.index(before)
                yield at, at + len(before), after, left.end_lineno or left.lineno


def _off_by_one(text: Text, function: Function) -> Iterator[Change]:
    for node in _inside(function):
        if isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value <= MAX_CONSTANT:
            start, end = text.span(node)
            if text.source[start:end] == str(node.value):
                yield start, end, str(node.value + 1), node.lineno


def _swapped_arguments(text: Text, function: Function) -> Iterator[Change]:
    for node in _inside(function):
        if isinstance(node, ast.Call) and len(node.args) >= 2:
            first, second = node.args[:2]
            if isinstance(first, ast.Starred | ast.GeneratorExp) or isinstance(second, ast.Starred):
                continue
            a, b = text.span(first), text.span(second)
            one, two = text.of(first), text.of(second)
            if one != two and NEWLINE.isdisjoint(text.source[a[0] : b[1]]):
                yield a[0], b[1], two + text.source[a[1] : b[0]] + one, node.lineno


def _dropped_branch(text: Text, function: Function) -> Iterator[Change]:
    """Remove an `if` that has no other branch."""
    blocks = [function.body] + [
        getattr(node, name)
        for node in _inside(function)
        for name in ("body", "orelse", "finalbody")
        if isinstance(getattr(node, name, None), list)
    ]
    for block in blocks:
        for statement in block:
            if isinstance(statement, ast.If) and not statement.orelse:
                start, end = text.span(statement)
                if re.match(r"if\b", text.source[start:end]) is None:  # an `elif`
                    continue
                if len(block) > 1:
                    last = statement.end_lineno or statement.lineno
                    yield text.starts[statement.lineno - 1], text.starts[last], "", statement.lineno
                else:
                    yield start, end, "pass", statement.lineno


def _wrong_default(text: Text, function: Function) -> Iterator[Change]:
    arguments = function.args
    for node in (*arguments.defaults, *arguments.kw_defaults):
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            start, end = text.span(node)
            value = not node.value if isinstance(node.value, bool) else node.value + 1
            yield start, end, repr(value), node.lineno


def _removed_body(text: Text, function: Function) -> Iterator[Change]:
    body = _body(function)
    if not body or ast.get_docstring(function) is None:
        return  # without a docstring nothing would say what the function is for
    last = body[-1]
    if 2 <= (last.end_lineno or last.lineno) - body[0].lineno + 1 <= MAX_BODY:
        start, end = text.span(body[0])[0], text.span(last)[1]
        yield start, end, "raise NotImplementedError", body[0].lineno


KINDS: dict[str, Callable[[Text, Function], Iterator[Change]]] = {
    "operator": _operators,
    "off by one": _off_by_one,
    "swapped arguments": _swapped_arguments,
    "dropped branch": _dropped_branch,
    "wrong default": _wrong_default,
    "removed body": _removed_body,
}
"""The finders of changes, by the kind of fault."""
