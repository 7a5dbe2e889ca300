"""What every page reads from: the store, the tokenizer of its texts, and the time."""

import math
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, LargeBinary, cast, func

from ostinato.dashboard.text.lexicon import Lexicon
from ostinato.store import Store
from ostinato.store.sql.schema import turns

Answer = dict[str, Any]
"""The content of a page, in JSON values."""
Asked = Mapping[str, str]
"""The fields of a page's address."""


class NotThereError(LookupError):
    """The page's subject is not in the store, or not for this viewer's eyes."""


class AskedError(ValueError):
    """A field of the address cannot be read; the message says which, and what it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSource:
    """The record as the pages read it.

    >>> RecordSource(store=store, lexicon=None).run is None                                # doctest: +SKIP
    True
    """

    store: Store
    lexicon: Lexicon | None
    """None where no tokenizer is known: then tokens are numbers without a text."""
    clock: Callable[[], float] = field(default=time.time)


def first_version(column: Any = turns.c.versions) -> ColumnElement[bytes]:
    """Return the version of the first token of a turn, as it lies in the first bytes of its runs."""
    return cast(func.substr(column, 1, 4), LargeBinary)


def version_bytes(version: int) -> bytes:
    return struct.pack("<i", version)


def version_of(first: bytes | None) -> int | None:
    """Return the version in these bytes; None for a turn without tokens."""
    return None if not first or len(first) < 4 else int(struct.unpack("<i", first)[0])


def number(asked: Asked, name: str) -> float | None:
    """Return a number from the address; None where it is not given. Raises AskedError."""
    text = asked.get(name, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise AskedError(f"{name} is {text[:40]!r}: give a number") from None
    if not math.isfinite(value):
        raise AskedError(f"{name} is {text[:40]!r}: give a finite number")
    return value


def whole(asked: Asked, name: str, default: int) -> int:
    """Return a whole number of at most nine digits from the address. Raises AskedError."""
    text = asked.get(name, "").strip()
    if not text:
        return default
    if not text.removeprefix("-").isascii() or not text.removeprefix("-").isdigit() or len(text) > 9:
        raise AskedError(f"{name} is {text[:40]!r}: give a whole number")
    return int(text)


def choice(asked: Asked, name: str, choices: tuple[str, ...], default: str = "") -> str:
    """Return one of the choices from the address. Raises AskedError for any other."""
    text = asked.get(name, "").strip() or default
    if text and text not in choices:
        raise AskedError(f"{name} is {text[:40]!r}: give one of {', '.join(choices)}")
    return text
