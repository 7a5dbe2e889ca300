"""Values between Python and PostgreSQL, where they would differ from those in a SQLite file.

Only `postgres.py` imports this, once the driver is known to be there.
"""

import math
from typing import Any

from psycopg.types.numeric import FloatDumper
from psycopg.types.string import StrDumper, TextLoader

NUL, ESCAPE = "\x00", "\x1a"
"""PostgreSQL's text holds no NUL. It is stored as ESCAPE and 0, and ESCAPE itself as ESCAPE and 1."""


def escaped(text: str) -> str:
    """Return the text as it is stored.

    >>> escaped("a\\x00b") == "a\\x1a0b" and escaped("plain")
    'plain'
    """
    if NUL in text or ESCAPE in text:
        return text.replace(ESCAPE, f"{ESCAPE}1").replace(NUL, f"{ESCAPE}0")
    return text


def unescaped(stored: str) -> str:
    """Return the text that was stored; the inverse of `escaped`."""
    if ESCAPE in stored:
        return stored.replace(f"{ESCAPE}0", NUL).replace(f"{ESCAPE}1", ESCAPE)
    return stored


class EscapedDumper(StrDumper):
    """Sends text."""

    def dump(self, obj: str) -> Any:
        return super().dump(escaped(obj))


class EscapedLoader(TextLoader):
    """Reads text."""

    def load(self, data: Any) -> str | bytes:
        found = super().load(data)
        return unescaped(found) if isinstance(found, str) else found


class NumberDumper(FloatDumper):
    """Sends a float; NaN is a missing value, so that a column that needs one refuses it."""

    def dump(self, obj: float) -> Any:
        return None if math.isnan(obj) else super().dump(obj)
