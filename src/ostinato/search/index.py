"""Trees of files, and queries against them.

::

    manifest {path: content hash} ──► tree hash           missing files ──► contents ──► pieces ──► rows
                                          └────────────── query ──► pieces with the best scores ◄─────┘

A tree is only its manifest: pieces are cut and embedded once for each content and syntax, so a new tree costs
only the changed files. The same manifest has the same hash everywhere, and gets the same results.
"""

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ostinato.search.cache import Cache, Encoded
from ostinato.search.chunks import chunks, syntax_of
from ostinato.search.embed import Embedding, Scorer

MAX_FILE_BYTES = 2**20
MAX_FILES = 50_000
MAX_PATH = 4_096
HEX = re.compile("[0-9a-f]{64}")
MOST_HITS = 50
OPEN_PIECES = 200_000
"""The most pieces of all trees that are kept ready in memory, about 1 KB each."""


class UnknownTree(Exception):  # noqa: N818
    """No tree of this hash is registered: send its manifest."""


class MissingFiles(Exception):  # noqa: N818
    """A tree names contents that are not known: send them."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(f"{len(paths)} files are missing")
        self.paths = tuple(paths)


class SearchError(Exception):
    """A manifest, file or query that is not acceptable; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """One result of a query: its place and its score. Lines count from 1, and both ends are included.

    >>> SearchHit(path="calc.py", first=1, last=2, score=3.5).path
    'calc.py'
    """

    path: str
    first: int
    last: int
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tree:
    """A tree that is ready for queries; `paths` and `spans` have one entry per piece."""

    paths: tuple[str, ...]
    spans: "np.ndarray[Any, np.dtype[np.int32]]"
    score: Scorer


def content_hash(content: bytes) -> str:
    """Return the id that git gives a blob in a SHA-256 repository."""
    return hashlib.sha256(b"blob %d\0" % len(content) + content).hexdigest()


def tree_hash(manifest: Mapping[str, str]) -> str:
    """Return the hash of paths and content hashes, which does not depend on their order."""
    rows = (f"{path}\0{digest}\n".encode(errors="surrogatepass") for path, digest in sorted(manifest.items()))
    return hashlib.sha256(b"".join(rows)).hexdigest()


class Index:
    """Any number of trees over one cache. Methods may be called from any thread."""

    def __init__(self, cache: Cache, embedding: Embedding) -> None:
        self._cache = cache
        self._embedding = embedding
        self._open: OrderedDict[str, _Tree] = OrderedDict()
        self._lock = threading.Lock()
        self.embedded = 0
        """The number of contents that were cut and embedded since the start."""

    def register(self, manifest: Mapping[str, str]) -> tuple[str, list[str]]:
        """Return the hash of a tree, and one path for each content that is not known yet.

        Raises SearchError.
        """
        _check_manifest(manifest)
        key = tree_hash(manifest)
        self._cache.add_tree(key, manifest)
        paths = {self._key(path, digest): path for path, digest in sorted(manifest.items(), reverse=True)}
        known = self._cache.known(paths)
        return key, sorted(path for key, path in paths.items() if key not in known)

    def add(self, files: Iterable[tuple[str, bytes]]) -> None:
        """Add contents. The path only decides how its content is cut into pieces. Raises SearchError."""
        encoded: dict[str, Encoded] = {}
        for path, content in files:
            if len(content) > MAX_FILE_BYTES:
                raise SearchError(f"{path} is larger than {MAX_FILE_BYTES} bytes: leave it out")
            encoded[self._key(path, content_hash(content))] = self._encode(path, content)
        self._cache.add_files(encoded)
        self.embedded += len(encoded)

    def query(self, tree: str, query: str, *, path: str = ".", k: int = 10) -> list[SearchHit]:
        """Return the best pieces at or below `path`, best first.

        Raises UnknownTree, MissingFiles, SearchError.
        """
        if not 1 <= k <= MOST_HITS:
            raise SearchError(f"k must be 1 to {MOST_HITS}")
        opened = self._tree(tree)
        scores = opened.score(query)
        order = np.argsort(-scores, kind="stable")
        near = order[scores[order] > 0]
        hits = (number for number in near.tolist() if _below(opened.paths[number], path))
        return [_hit(opened, number, scores) for number, _ in zip(hits, range(k), strict=False)]

    def close(self) -> None:
        self._cache.close()

    def _key(self, path: str, digest: str) -> str:
        return f"{self._embedding.name}/{syntax_of(path)}/{digest}"

    def _encode(self, path: str, content: bytes) -> Encoded:
        pieces = chunks(content, syntax_of(path))
        spans = np.array([(piece.first, piece.last) for piece in pieces], dtype=np.int32).reshape(-1, 2)
        return Encoded(spans=spans, rows=tuple(self._embedding.encode(pieces)))

    def _tree(self, key: str) -> _Tree:
        with self._lock:
            if key in self._open:
                self._open.move_to_end(key)
                return self._open[key]
        tree = self._load(key)
        with self._lock:
            self._open[key] = tree
            while len(self._open) > 1 and sum(len(t.paths) for t in self._open.values()) > OPEN_PIECES:
                self._open.popitem(last=False)
        return tree

    def _load(self, key: str) -> _Tree:
        manifest = self._cache.tree(key)
        if manifest is None:
            raise UnknownTree(f"tree {key} is not known: register its files first")
        keys = {path: self._key(path, digest) for path, digest in sorted(manifest.items())}
        files = self._cache.files(keys.values())
        missing = [path for path, file_key in keys.items() if file_key not in files]
        if missing:
            raise MissingFiles(missing)
        paths = [path for path, file_key in keys.items() for _ in files[file_key].rows]
        rows = [row for file_key in keys.values() for row in files[file_key].rows]
        spans = [files[file_key].spans for file_key in keys.values()]
        return _Tree(
            paths=tuple(paths),
            spans=np.concatenate(spans) if spans else np.empty((0, 2), dtype=np.int32),
            score=self._embedding.scorer(rows, paths),
        )


def _hit(tree: _Tree, number: int, scores: Any) -> SearchHit:
    first, last = tree.spans[number]
    return SearchHit(path=tree.paths[number], first=int(first), last=int(last), score=float(scores[number]))


def _below(path: str, folder: str) -> bool:
    folder = folder.strip("/").removeprefix("./")
    return folder in {"", "."} or path == folder or path.startswith(folder + "/")


def _check_manifest(manifest: Mapping[str, str]) -> None:
    if len(manifest) > MAX_FILES:
        raise SearchError(f"more than {MAX_FILES} files: ignore what is not source, or search a part")
    for path, digest in manifest.items():
        if not 1 <= len(path) <= MAX_PATH or "\0" in path or path.startswith("/") or ".." in path.split("/"):
            raise SearchError(f"{path!r:.200} is not a path within a repository")
        if not HEX.fullmatch(digest):
            raise SearchError(
                f"{path!r:.200}: the content hash must be 64 hexadecimal digits, like git's with SHA-256"
            )
