"""Views of a text: its escapes decoded, or the lines joined over which a value was broken.

A view holds only the lines that change, and knows where each of its characters comes from, so a secret that
is found in it becomes a place in the text.
"""

import html
import re
from array import array
from collections.abc import Callable

ESCAPE = re.compile(
    r"[\\%&](?:(?<=\\)\\?(?:u00([0-7][0-9a-fA-F])|x([0-7][0-9a-fA-F])|(/))|(?<=%)([0-7][0-9a-fA-F])"
    r"|(?<=&)(#x?[0-9a-fA-F]{2,4};|quot;|amp;|apos;))"
)
"""One ASCII character as JSON, C, PHP, URLs and HTML escape it."""
JOINT = re.compile(
    r"""(?x)
    ["'`] [ \t]{0,20} [+.&]? [ \t]{0,20} \\? \r?\n [ \t]{0,80} [+.&]? [ \t]{0,20} ["'`] (?=[\w+/=.-]{4})
    | \\\r?\n [ \t]{0,80}
    | (?<=[A-Za-z0-9_+/=-]{16}) \r?\n [ \t>\#*|]{0,12} (?=[\w+/=.-]{4,1024}+ [ \t]* (?:$|[\r\n"'`]))
    """
)
"""Where a value goes on: two quoted parts, a backslash at the end of a line, or a line of nothing else."""


class View:
    """The lines of `text` in which `pattern` matches, with each match replaced.

    >>> view = View(r"a\\u0062c", ESCAPE, decoded)
    >>> view.text, view.place(0, 2)
    ('abc', (0, 7))
    """

    def __init__(
        self, text: str, pattern: re.Pattern[str], value_of: Callable[[re.Match[str]], str | None]
    ) -> None:
        self._starts, self._ends = array("q"), array("q")  # of each character, in `text`
        pieces: list[str] = []

        def keep(start: int, end: int) -> None:
            pieces.append(text[start:end])
            self._starts.extend(range(start, end))
            self._ends.extend(range(start + 1, end + 1))

        def put(piece: str, start: int, end: int) -> None:
            pieces.append(piece)
            self._starts.extend([start] * len(piece))
            self._ends.extend([end] * len(piece))

        at = line_end = 0
        for match in pattern.finditer(text):
            if (value := value_of(match)) is None:
                continue
            if match.start() > line_end:
                keep(at, line_end)
                if line_end:  # a line that follows another one in the view alone is apart from it
                    put("\n\n", line_end, line_end)
                at = text.rfind("\n", line_end, match.start()) + 1 or line_end
            keep(at, match.start())
            put(value, match.start(), match.end())
            at = match.end()
            if at > line_end:
                line_end = text.find("\n", at) % (len(text) + 1)  # -1 becomes the end
        keep(at, line_end)
        self.text = "".join(pieces)

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Return where a part of the view comes from; it is longer where something was replaced."""
        return self._starts[start], self._ends[end - 1]


def decoded(match: re.Match[str]) -> str | None:
    """Return the character that `ESCAPE` matched; None when it is none of a text."""
    unicode, code, slash, percent, entity = match.groups()
    number = unicode or code or percent
    character = html.unescape(f"&{entity}") if entity else chr(int(number, 16)) if number else slash
    return character if character.isprintable() or character in "\t\r\n" else None
