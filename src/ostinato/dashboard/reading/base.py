"""What every page reads from: the store, the tokenizer of its texts, and the time."""

import math
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import ColumnElement, LargeBinary, cast, func

from ostinato.dashboard.text.lexicon import Lexicon
from ostinato.store import Store
from ostinato.store.sql.schema import turns
from ostinato.web.plain import line_of

Answer = dict[str, Any]
"""The content of a page, in JSON values."""
Asked = Mapping[str, str]
"""The fields of a page's address."""


class NotThereError(LookupError):
    """The page's subject is not in the store, or not for this viewer's eyes."""


class AskedError(ValueError):
    """A field of the address cannot be read; the message says which, and what it may be."""


class WordError(ValueError):
    """A word of a person that nothing can obey now; the message says why."""


class LoopSide(Protocol):
    """The part of the loop that the pages show and steer: rooms beside this one, which it may not import."""

    def looks(self, store: Store, terms: Mapping[str, Any], now: float, most: int | None) -> Answer:
        """Return a trial judged again and again while its sessions came, up to the first `most` of them or
        all; `terms` are those in the log."""

    def behaviours(self, store: Store, lexicon: Lexicon | None, now: float) -> list[Answer]:
        """Return what the monitors see of the newest live sessions, and where it changed."""

    def state(self, store: Store) -> Answer:
        """Return the cycle's state as its log tells it: `cycle`, `stage`, `paused`, and whether it is in a
        `trial`."""

    def say(self, store: Store, word: str, by: str, reason: str) -> None:
        """Log the word of a person, as `ostinato cycle` does. Raises WordError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionCopy:
    """A copy of the chain of weights, by its name and the URL or folder of its object store.

    >>> RegionCopy(name="eu", objects="s3://weights-eu").name
    'eu'
    """

    name: str
    objects: str
    prefix: str = "weights"

    @property
    def shown(self) -> Answer:
        return {"name": line_of(self.name, 60), "where": line_of(self.objects, 120)}


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
    name: str = "this run"
    directory: Path | None = None
    """The run folder, where there is one: the learners' journals and the objects lie there."""
    loop: LoopSide | None = None
    """None where only the record is read: then trials are seen as their verdicts left them."""
    beside: tuple["RecordSource", ...] = ()
    """Other runs, which the charts of training draw over this one."""

    regions: tuple[RegionCopy, ...] = ()

    def close(self) -> None:
        for each in (self, *self.beside):
            each.store.close()


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
