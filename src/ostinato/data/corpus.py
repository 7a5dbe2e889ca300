"""A corpus on disk, and the rows that a trainer draws from it.

A row has exactly `length` tokens. A document gives as many rows as fit into it; what is left of it is put
together with what is left of others. So a long document is seen with all of its context, nothing is padded,
and the rows of an epoch can be shuffled: row n follows from the corpus, the length and the seed, so that a
trainer that was killed goes on at any of them.
"""

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from ostinato.data.card import CARD
from ostinato.data.config import CorpusError

Tokens = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Stretch:
    """The tokens of one document in a row: those from `start` to `end` of a shard."""

    shard: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRow:
    """The tokens of a row, and the places at which its documents begin; the first is 0.

    >>> TextRow(ids=np.arange(4), starts=(0, 3)).starts
    (0, 3)
    """

    ids: Tokens
    starts: tuple[int, ...]


class SourceTokens:
    """The shards of one source. Raises CorpusError for one that is cut or changed."""

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        self.name: str = about["name"]
        self.weight: float = about["weight"]
        self.held_out: bool = about["held_out"]
        self._tokens: list[Tokens] = []
        self._ends: list[Tokens] = []
        for shard in about["shards"]:
            for name, digest in shard["sha256"].items():
                _check(folder / name, digest)
            self._tokens.append(np.load(folder / f"{shard['name']}.npy", mmap_mode="r"))
            self._ends.append(np.load(folder / f"{shard['name']}.ends.npy"))

    @cached_property
    def tokens(self) -> int:
        return sum(map(len, self._tokens))

    def documents(self) -> Iterator[Stretch]:
        for number, ends in enumerate(self._ends):
            yield from (
                Stretch(number, int(start), int(end))
                for start, end in zip([0, *ends[:-1]], ends, strict=True)
            )

    def whole(self, length: int) -> list[list[Stretch]]:
        """Return the rows that lie in one document each, in order."""
        return [
            [Stretch(each.shard, at, at + length)]
            for each in self.documents()
            for at in range(each.start, each.end - length + 1, length)
        ]

    def epoch(self, length: int, seed: str) -> list[list[Stretch]]:
        """Return all rows of one pass in random order; the tokens after the last full row are left out.

        Raises CorpusError for a source that has not even one row.
        """
        rng = random.Random(seed)
        rests = [
            Stretch(each.shard, each.end - rest, each.end)
            for each in self.documents()
            if (rest := (each.end - each.start) % length)
        ]
        rng.shuffle(rests)
        rows = [*self.whole(length), *_joined(rests, length)]
        if not rows:
            raise CorpusError(
                f"source {self.name} has {self.tokens} tokens, not one row of {length}: give it more text or "
                "shorten the rows"
            )
        rng.shuffle(rows)
        return rows

    def row(self, stretches: Sequence[Stretch]) -> TextRow:
        parts = [self._tokens[each.shard][each.start : each.end] for each in stretches]
        starts = np.cumsum([0, *map(len, parts[:-1])])
        return TextRow(ids=np.concatenate(parts).astype(np.int64), starts=tuple(map(int, starts)))


class Corpus:
    """A corpus that `ostinato data build` wrote, complete and as it was written. Raises CorpusError."""

    def __init__(self, folder: Path, card: dict[str, Any]) -> None:
        self.digest: str = card["digest"]
        self.tokenizer: str = card["tokenizer"]
        sources = [SourceTokens(folder, about) for about in card["sources"]]
        self._trained = [source for source in sources if not source.held_out]
        self.held_out = [source for source in sources if source.held_out]

    @classmethod
    def open(cls, folder: Path) -> Self:
        try:
            card = json.loads((folder / CARD).read_text())
        except (OSError, ValueError) as error:
            raise CorpusError(
                f"{folder} has no {CARD} that can be read: build a corpus there with `ostinato data build`"
            ) from error
        return cls(folder, card)

    def rows(self, length: int, seed: int, skip: int = 0) -> Iterator[TextRow]:
        """Yield rows without end from number `skip` on, from each source as often as its weight says.

        The next row is of the source that is furthest behind its share.
        """
        drawn, epochs = [0] * len(self._trained), dict[tuple[int, int], list[list[Stretch]]]()
        total = sum(source.weight for source in self._trained)
        sizes = [len(source.epoch(length, "")) for source in self._trained]
        number = 0
        while True:
            behind = [
                source.weight / total * (number + 1) - taken
                for source, taken in zip(self._trained, drawn, strict=True)
            ]
            which = behind.index(max(behind))
            epoch, place = divmod(drawn[which], sizes[which])
            drawn[which] += 1
            number += 1
            if number <= skip:
                continue
            if (which, epoch) not in epochs:
                epochs = {key: rows for key, rows in epochs.items() if key[0] != which}
                epochs[which, epoch] = self._trained[which].epoch(length, f"{seed} {which} {epoch}")
            yield self._trained[which].row(epochs[which, epoch][place])


def _joined(rests: Sequence[Stretch], length: int) -> list[list[Stretch]]:
    """Return full rows of the stretches one after another, each cut where a row ends."""
    rows: list[list[Stretch]] = []
    row, room = list[Stretch](), length
    for rest in rests:
        start = rest.start
        while start < rest.end:
            end = min(rest.end, start + room)
            row.append(Stretch(rest.shard, start, end))
            room -= end - start
            start = end
            if not room:
                rows.append(row)
                row, room = [], length
    return rows


def _check(path: Path, digest: str) -> None:
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror}: build the corpus again") from error
    if found != digest:
        raise CorpusError(f"{path} is cut or was changed since it was built: build the corpus again")
