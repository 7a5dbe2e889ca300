"""Text without its formatting, so that a formatter's changes do not count."""

import ast
import io
import re
import textwrap
import tokenize
from collections.abc import Sequence

TOKEN = re.compile(r"\w+|[^\w\s]")
CLOSERS = frozenset(")]}")
LINE_END = re.compile(r"[;\\]+\s*$")


def tokens(lines: Sequence[str]) -> list[str]:
    """Return the words and signs of `lines`.

    Blanks, line breaks, the kind of quotes, commas before a closing bracket, and semicolons and backslashes
    at the end of a line are left out, because formatters change them.
    """
    words: list[str] = []
    for line in lines:
        for word in TOKEN.findall(LINE_END.sub("", line)):
            if word in CLOSERS and words and words[-1] == ",":
                words.pop()
            words.append('"' if word == "'" else word)
    return words


def key(line: str) -> str:
    """Return a text that is equal for two lines that differ in formatting only."""
    return "".join(tokens([line])).rstrip(",")


def same_meaning(path: str, one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether `one` and `other` differ in formatting only.

    Python files are compared by their syntax trees and comments if both texts can be parsed: redundant
    brackets do not count, but an indentation that changes the program does.
    """
    if path.endswith((".py", ".pyi")):
        meanings = _python(one), _python(other)
        if None not in meanings:
            return meanings[0] == meanings[1]
    return tokens(one) == tokens(other)


def _python(lines: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """Return the syntax tree and the comments; None when the lines cannot be parsed by themselves."""
    text = textwrap.dedent("".join(lines))
    try:
        words = tokenize.generate_tokens(io.StringIO(text).readline)
        comments = [word.string for word in words if word.type == tokenize.COMMENT]
        return ast.dump(ast.parse(text)), tuple("".join(comment.split()) for comment in comments)
    except (SyntaxError, tokenize.TokenError, ValueError, RecursionError, MemoryError):
        return None
