"""Python source as text, and back to the very bytes: any declared encoding, byte order mark and newlines.

A fault changes a few characters of a file, and everything else stays as it was, byte by byte.
"""

import ast
import io
import re
import tokenize
import warnings
from dataclasses import dataclass

MOST_BYTES = 1 << 20
"""Bytes of the largest source that is read: a larger one was generated, or holds data."""
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
"""A line as Python counts them. `str.splitlines` knows more separators, which may stand in a line here."""


class PythonSourceError(Exception):
    """A file of which no tree can be made; the message is the reason by which such files are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonSource:
    """The text of a source file, with the newlines that it has, and the encoding that brings its bytes back.

    >>> PythonSource(text="x = 1\\r\\n", encoding="utf-8").lines
    ['x = 1\\r\\n']
    """

    text: str
    encoding: str
    """`utf-8-sig` stands for a byte order mark."""

    @property
    def lines(self) -> list[str]:
        return LINE.findall(self.text)

    @property
    def newline(self) -> str:
        """The newline of the first line."""
        found = re.search(r"\r\n|\r|\n", self.text)
        return found[0] if found else "\n"

    def tree(self) -> ast.Module:
        """Return the syntax tree. Raise PythonSourceError for a text that is no Python of this version."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(self.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise PythonSourceError("no Python of this version") from error

    def with_text(self, text: str) -> "PythonSource":
        return PythonSource(text=text, encoding=self.encoding)

    def encoded(self) -> bytes:
        return self.text.encode(self.encoding)


def python_source(data: bytes) -> PythonSource:
    """Return the source in these bytes. Raise PythonSourceError where they cannot be brought back."""
    if len(data) > MOST_BYTES:
        raise PythonSourceError(f"larger than {MOST_BYTES >> 20} MiB")
    try:
        head = io.BytesIO(data.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
        encoding, _ = tokenize.detect_encoding(head.readline)
        source = PythonSource(text=data.decode(encoding), encoding=encoding)
    except (SyntaxError, UnicodeError, LookupError) as error:
        raise PythonSourceError("not in the encoding that they declare") from error
    if source.encoded() != data:
        raise PythonSourceError("in an encoding that does not give their bytes back")
    return source
