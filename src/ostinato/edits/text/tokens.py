"""Text without its formatting: what is left when a formatter has nothing more to say."""

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
    """Words and signs of `lines`. Blanks, line breaks, the kind of quotes, commas before a closing bracket,
    semicolons and backslashes at the end of a line are gone: formatters move those."""
    found: list[str] = []
    for line in lines:
        for word in TOKEN.findall(LINE_END.sub("", line)):
            if word in CLOSERS and found and found[-1] == ",":
                found.pop()
            found.append('"' if word == "'" else word)
    return found


def key(line: str) -> str:
    """What two lines that differ in formatting only have in common."""
    return "".join(tokens([line])).rstrip(",")


def same_meaning(path: str, one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether only formatting tells `one` from `other`. For Python its grammar decides, if it reads both:
    brackets may come and go, but an indentation that changes what is run is a change."""
    if path.endswith((".py", ".pyi")):
        meanings = _python(one), _python(other)
        if None not in meanings:
            return meanings[0] == meanings[1]
    return tokens(one) == tokens(other)


def _python(lines: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """Syntax tree and comments; None when it cannot be read by itself."""
    text = textwrap.dedent("".join(lines))
    try:
        comments = [t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if _is_comment(t)]
        return ast.dump(ast.parse(text)), tuple("".join(comment.split()) for comment in comments)
    except (SyntaxError, tokenize.TokenError, ValueError, RecursionError, MemoryError):
        return None


def _is_comment(token: tokenize.TokenInfo) -> bool:
    return token.type == tokenize.COMMENT
