"""The protocol of embeddings, and one that needs no model: hashed words, scored by BM25."""

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ostinato.search.chunks import Chunk

Scores = NDArray[np.float32]
Scorer = Callable[[str], Scores]
"""A function from a query to one score for each row; higher is nearer."""
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+|\d+")
STEM = re.compile(r"(?<=\w{3})(?:ings?|ed|es|s|e|ly|ers?|ors?)$")
SATURATION, LENGTH = 8.0, 0.9
"""k1 and b of Okapi BM25 (Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009). Far above the
usual 1.2 and 0.75: in code, a short function in which a word occurs often is the one that is meant
(`benchmarks/search.py`: recall@5 from 0.28 to 0.42)."""
NAME_WEIGHT = 6
PATH_WEIGHT = 0.5
STOP = frozenset(
    "a an and are as at be by can for from given has have if in is it its not of on or that the "  # noqa: SIM905
    "this to which will with".split()
)


class Embedding(Protocol):
    """Encodes chunks once, and scores queries against any selection of encoded chunks."""

    @property
    def name(self) -> str:
        """The name of the encoding, which changes with it: cached rows of another name are not used."""
        ...

    def encode(self, chunks: Sequence[Chunk]) -> list[bytes]:
        """Return one row for each chunk."""
        ...

    def scorer(self, rows: Sequence[bytes], paths: Sequence[str]) -> Scorer:
        """Return a scorer of queries against `rows`, each from the file at the same place of `paths`."""
        ...


def words(text: str) -> list[str]:
    """Return words of prose and the parts of identifiers, in lower case and without their endings.

    >>> words("readLines of HTTPServer_v2")
    ['read', 'lin', 'http', 'serv', 'v', '2']
    """
    lowered = (word.lower() for word in WORD.findall(text))
    return [STEM.sub("", word) for word in lowered if word not in STOP]


def feature(word: str) -> int:
    """Return the number that stands for a word."""
    return zlib.crc32(word.encode())


class HashedEmbedding:
    """Counts of hashed words, each weighted by its rarity in the tree that is searched."""

    name = "hashed-1"

    def encode(self, chunks: Sequence[Chunk]) -> list[bytes]:
        return [_row(chunk) for chunk in chunks]

    def scorer(self, rows: Sequence[bytes], paths: Sequence[str]) -> Scorer:
        return Postings(rows, paths).score


ROW = np.dtype([("feature", "<u4"), ("count", "<f4")])


def _row(chunk: Chunk) -> bytes:
    counts: Counter[int] = Counter(map(feature, words(chunk.text)))
    for word in words(chunk.name):
        counts[feature(word)] += NAME_WEIGHT
    return np.array(sorted(counts.items()), dtype=ROW).tobytes()


class Postings:
    """The rows and weights of each feature, as arrays sorted by feature."""

    def __init__(self, rows: Sequence[bytes], paths: Sequence[str]) -> None:
        cells = [np.frombuffer(row, dtype=ROW) for row in rows]
        sizes = np.array([len(cell) for cell in cells], dtype=np.int64)
        every = np.concatenate(cells) if cells else np.empty(0, dtype=ROW)
        owner = np.repeat(np.arange(len(rows)), sizes)
        order = np.argsort(every["feature"], kind="stable")
        self._rows = len(rows)
        self._features = every["feature"][order]
        self._owner = owner[order]
        self._weights = _saturated(every["count"], owner, len(rows))[order]
        self._paths = _by_word(paths)

    def score(self, query: str) -> Scores:
        total = np.zeros(self._rows, dtype=np.float32)
        for word in set(words(query)):
            first, last = np.searchsorted(self._features, [feature(word), feature(word) + 1])
            rarity = _rarity(int(last - first), self._rows)
            np.add.at(total, self._owner[first:last], rarity * self._weights[first:last])
            in_path = self._paths.get(word)
            if in_path is not None:
                total[in_path] += PATH_WEIGHT * _rarity(len(in_path), self._rows)
        return total


def _saturated(counts: Scores, owner: NDArray[np.int64], rows: int) -> Scores:
    """Return the term weights of BM25: tf (k1 + 1) / (tf + k1 (1 - b + b length / mean length))."""
    lengths = np.bincount(owner, weights=counts, minlength=rows)
    mean = float(lengths.mean()) if rows else 1.0
    norm = SATURATION * (1 - LENGTH + LENGTH * lengths / max(mean, 1e-9))
    return (counts * (SATURATION + 1) / (counts + norm[owner])).astype(np.float32)


def _rarity(holding: int, rows: int) -> float:
    """Return the inverse document frequency, ln(1 + (N - n + ½) / (n + ½)), which is never negative."""
    return float(np.log1p((rows - holding + 0.5) / (holding + 0.5)))


def _by_word(paths: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    rows: dict[str, list[int]] = {}
    known: dict[str, Iterable[str]] = {}
    for number, path in enumerate(paths):
        if path not in known:
            known[path] = set(words(path))
        for word in known[path]:
            rows.setdefault(word, []).append(number)
    return {word: np.array(numbers) for word, numbers in rows.items()}
