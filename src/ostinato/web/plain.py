"""Text of strangers made safe to look at: no control characters, no hidden order, no endless lines.

Escaping for HTML is the template's work. This module sees to it that what is left cannot move a reader's eye:
a terminal's escape sequences, NUL and the marks that turn the order of letters become visible signs.
"""

import re
from dataclasses import dataclass

MOST_CHARACTERS = 20_000
"""The characters of one text that a page shows; the page says how many more there are."""
LONGEST_LINE = 2_000
"""The characters of one line that a page shows."""
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"} | {0x7F: "\u2421"}
_HIDDEN = [
    *range(0x80, 0xA0),  # C1 controls
    0x061C,
    0x200B,
    0x200E,
    0x200F,
    0x2028,
    0x2029,
    *range(0x202A, 0x202F),  # embeddings and overrides of the direction
    0x2060,
    *range(0x2066, 0x206A),  # isolates
    0xFEFF,
]
_SIGNS = _PICTURES | {code: f"\u27e8{code:X}\u27e9" for code in _HIDDEN}
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONG = re.compile(rf"[^\n]{{{LONGEST_LINE + 1},}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A text as a page shows it, and the number of characters that it leaves out.

    >>> Shown(text="a", cut=0).cut
    0
    """

    text: str
    cut: int


def clean(text: str) -> str:
    """Return the text with every control character and every hidden mark of direction as a visible sign.

    >>> clean("a\\x1b[31m\\u202eb")
    'a␛[31m⟨202E⟩b'
    """
    return _SURROGATE.sub("\ufffd", text.replace("\r\n", "\n")).translate(_SIGNS)


def shown(text: str, most: int = MOST_CHARACTERS) -> Shown:
    """Return the beginning of the text, clean, with its endless lines cut."""
    kept = text[:most]
    lost = len(text) - len(kept)
    for line in _LONG.findall(kept):
        lost += len(line) - LONGEST_LINE
    kept = _LONG.sub(lambda found: f"{found[0][:LONGEST_LINE]}…", kept)
    return Shown(text=clean(kept), cut=lost)


def line_of(text: str, most: int = 160) -> str:
    """Return the beginning of the text as one clean line.

    >>> line_of("fix\\nit")
    'fix it'
    """
    short = " ".join(text[: 4 * most].split())
    return clean(short if len(short) <= most else short[: most - 1] + "…")
