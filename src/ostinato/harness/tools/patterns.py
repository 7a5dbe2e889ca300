"""The patterns of `grep`: extended regular expressions, and what models write of other languages' forms.

`\\d`, `[\\w.]`, `(?:…)`, `(?i)` and `\\t` mean something else in an extended regular expression, or
nothing, so that a search would find nothing without a word. What has one meaning is rewritten, the rest is
refused.
"""

import re

from ostinato.harness.errors import InvalidArguments

TOKEN = re.compile(
    r"\\(?P<escape>.)|\[(?P<negated>\^?)(?P<inner>\]?(?:\[:\w+:\]|\\.|[^\]\\])*)\]|\(\?(?P<group>:?)|.",
    re.DOTALL,
)
INNER = re.compile(r"\[:\w+:\]|\\?.", re.DOTALL)
CLASSES = {"d": "0-9", "w": "[:alnum:]_", "s": "[:space:]"}
CHARACTERS = {"t": "\t", "r": "\r", "f": "\f", "v": "\v"}
OF_GREP = "bBwWsS"
"""The letters that GNU's extended expressions have after a backslash, outside of brackets."""
ANYTHING = re.compile(r"\[(\\s\\S|\\S\\s|\\d\\D|\\D\\d|\\w\\W|\\W\\w)\]")


def extended(pattern: str) -> tuple[str, bool]:
    """Return the pattern as an extended regular expression, and whether letters of either case fit.

    Raises InvalidArguments for a form that these expressions have not.

    >>> extended(r"(?i)v\\d+(?:\\.[\\d-]+)*")
    ('v[0-9]+(\\\\.[0-9-]+)*', True)
    """
    if "\n" in pattern:
        raise InvalidArguments("a match lies within one line, and the pattern has a newline")
    rest = pattern.removeprefix("(?i)")
    wide = ANYTHING.sub(".", rest)
    return TOKEN.sub(_rewritten, wide), rest != pattern


def _rewritten(found: re.Match[str]) -> str:
    if found["inner"] is not None:
        return _brackets(found["negated"], found["inner"])
    if found["group"] is not None:
        if not found["group"]:
            raise InvalidArguments(
                f"an extended regular expression has no {found.string[found.start() :][:3]}"
            )
        return "("
    return found[0] if found["escape"] is None else _escape(found["escape"])


def _escape(letter: str) -> str:
    if letter in "dD":
        return f"[{'^' if letter == 'D' else ''}0-9]"
    if letter in CHARACTERS:
        return CHARACTERS[letter]
    if letter.isalpha() and letter not in OF_GREP:
        raise InvalidArguments(f"an extended regular expression has no \\{letter}")
    return f"\\{letter}"


def _brackets(negated: str, inner: str) -> str:
    """Return the brackets without escapes: `]` stands first there, `-` last, and `^` not first."""
    first = last = kept = ""
    for part in INNER.findall(inner):
        letter = part[1:] if part[0] == "\\" else ""
        if part == "]" or letter == "]":
            first = "]"
        elif letter in ("-", "^"):
            last = "".join(sorted({*last, letter}, reverse=True))
        elif letter in CLASSES:
            kept += CLASSES[letter]
        elif letter == "n":
            continue  # no line has one
        elif letter.isalpha() and letter not in CHARACTERS:
            raise InvalidArguments(f"brackets of an extended regular expression have no \\{letter}")
        else:
            kept += CHARACTERS.get(letter, letter or part)
    if first + kept + last in ("", "^"):
        return "." if negated and not last else f"[^{last}]" if negated else r"\^"
    return f"[{negated}{first}{kept}{last}]"
