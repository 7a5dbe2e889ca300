"""The cutting of a file into the pieces that a search returns.

Lines count from 1, and both ends are included.

::

    python      every function and method, the head of each class, and the paragraphs between them
    the rest    paragraphs, packed up to LINES lines
"""

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath

LINES = 60
"""The most lines of a piece; a longer function is cut."""
PACKED = 25
"""Paragraphs are put together until they have this many lines."""
LINE_CHARS = 400
"""The characters of a line that are used: minified files have lines of a megabyte."""
MOST_CHUNKS = 5_000
Span = tuple[int, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a file.

    >>> Chunk(first=1, last=2, name="alpha", text="def alpha():\\n    pass").name
    'alpha'
    """

    first: int
    last: int
    name: str
    """The dotted name of the function or class; empty elsewhere."""
    text: str


def syntax_of(path: str) -> str:
    """Return the syntax by which a file is cut: `python` or `text`."""
    return "python" if PurePosixPath(path).suffix in {".py", ".pyi"} else "text"


def chunks(content: bytes, syntax: str) -> list[Chunk]:
    """Return the pieces of a file that are not blank; none for a binary file. Never raises."""
    if b"\0" in content:
        return []
    lines = content.decode(errors="replace").replace("\r\n", "\n").split("\n")
    spans = _python(lines) if syntax == "python" else _paragraphs(lines, 1, len(lines))
    pieces = (_chunk(lines, *part) for span in spans for part in _cut(*span))
    return [piece for piece in pieces if piece is not None][:MOST_CHUNKS]


def _chunk(lines: list[str], first: int, last: int, name: str) -> Chunk | None:
    """Return a piece without blank lines at its ends; None when nothing is left."""
    filled = [number for number in range(first, last + 1) if lines[number - 1].strip()]
    if not filled:
        return None
    first, last = filled[0], filled[-1]
    text = "\n".join(line[:LINE_CHARS] for line in lines[first - 1 : last])
    return Chunk(first=first, last=last, name=name, text=text)


def _cut(first: int, last: int, name: str) -> Iterator[Span]:
    for start in range(first, last + 1, LINES):
        yield start, min(start + LINES - 1, last), name


def _python(lines: list[str]) -> list[Span]:
    """Return the spans of functions and heads of classes, and of the paragraphs between them."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _paragraphs(lines, 1, len(lines))
    named = list(_definitions(module.body, ""))
    spans, at = [], 1
    for first, last, name in named:
        spans += _paragraphs(lines, at, first - 1)
        spans.append((max(first, at), last, name))
        at = max(at, last + 1)
    return spans + _paragraphs(lines, at, len(lines))


def _definitions(body: list[ast.stmt], prefix: str) -> Iterator[Span]:
    """Yield spans in order, without overlap: for a class its head, then each of its methods."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield _start(node), node.end_lineno or node.lineno, prefix + node.name
        elif isinstance(node, ast.ClassDef):
            inner = list(_definitions(node.body, f"{prefix}{node.name}."))
            head = inner[0][0] - 1 if inner else node.end_lineno or node.lineno
            yield _start(node), max(head, node.lineno), prefix + node.name
            yield from inner


def _start(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _paragraphs(lines: list[str], first: int, last: int) -> list[Span]:
    """Return spans of the lines `first` to `last`, split at blank lines after at least PACKED lines."""
    breaks, start = [first], first
    for number in range(first, last + 1):
        if number - start >= PACKED and not lines[number - 1].strip():
            breaks.append(number)
            start = number
    return [(a, b - 1, "") for a, b in pairwise([*breaks, last + 1]) if a < b]
