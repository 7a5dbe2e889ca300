"""The cache of embeddings on disk: pieces by content hash, manifests by tree hash. All of it can be rebuilt.

Rows carry a checksum. A damaged row counts as missing; a damaged file is moved aside and a new one is begun.
"""

import json
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import xxhash

SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS files (
    key TEXT PRIMARY KEY, body BLOB NOT NULL, checksum TEXT NOT NULL, used REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS trees (
    key TEXT PRIMARY KEY, body BLOB NOT NULL, checksum TEXT NOT NULL, used REAL NOT NULL
) WITHOUT ROWID;
"""
AT_ONCE = 500
KEPT_AFTER_EVICTION = 0.8
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """The pieces of one file, embedded.

    `spans` is int32 of shape [pieces, 2]: first and last line. `rows` are encoded by an embedding, one per
    piece.
    """

    spans: "np.ndarray[Any, np.dtype[np.int32]]"
    rows: tuple[bytes, ...]

    def pack(self) -> bytes:
        lengths = np.array([len(row) for row in self.rows], dtype="<u4")
        head = np.array([len(self.rows)], dtype="<u4")
        return b"".join((head.tobytes(), self.spans.astype("<i4").tobytes(), lengths.tobytes(), *self.rows))

    @classmethod
    def unpack(cls, body: bytes) -> "Encoded":
        count = int(np.frombuffer(body, "<u4", 1)[0])
        spans = np.frombuffer(body, "<i4", 2 * count, offset=4).reshape(count, 2)
        ends = 4 + 12 * count + np.cumsum(np.frombuffer(body, "<u4", count, offset=4 + 8 * count))
        starts = [4 + 12 * count, *ends[:-1].tolist()]
        rows = tuple(body[a:b] for a, b in zip(starts, ends.tolist(), strict=False))
        return cls(spans=spans.astype(np.int32), rows=rows)


class Cache:
    """A thread-safe cache in a file that one process uses.

    When it grows beyond `max_bytes`, the least recently used rows are removed.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._database = self._open()

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return _connect(self._path)
        except sqlite3.DatabaseError:
            self._put_aside()
            return _connect(self._path)

    def _put_aside(self) -> None:
        """Rename a damaged file, so that the cause can still be examined."""
        self._path.replace(self._path.with_suffix(".damaged"))
        for suffix in ("-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def files(self, keys: Iterable[str]) -> dict[str, Encoded]:
        """Return the cached files under `keys`; missing and damaged ones are left out."""
        bodies = self._bodies("files", list(dict.fromkeys(keys)))
        return {key: Encoded.unpack(body) for key, body in bodies.items()}

    def known(self, keys: Iterable[str]) -> set[str]:
        """Return those of `keys` that are cached; their checksums are not verified."""
        return {
            key
            for part in _parts(list(keys))
            for (key,) in self._execute(_select("key", "files", part), part)
        }

    def add_files(self, encoded: Mapping[str, Encoded]) -> None:
        self._put("files", {key: value.pack() for key, value in encoded.items()})

    def tree(self, key: str) -> dict[str, str] | None:
        """Return the content hash of each path, or None when the tree is not known."""
        body = self._bodies("trees", [key]).get(key)
        return None if body is None else json.loads(zlib.decompress(body))

    def add_tree(self, key: str, manifest: Mapping[str, str]) -> None:
        self._put("trees", {key: zlib.compress(json.dumps(dict(manifest)).encode(), 1)})

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def _bodies(self, table: str, keys: list[str]) -> dict[str, bytes]:
        bodies: dict[str, bytes] = {}
        for part in _parts(keys):
            for key, body, checksum in self._execute(_select("key, body, checksum", table, part), part):
                if xxhash.xxh3_128_hexdigest(body) == checksum:
                    bodies[key] = body
            used = f"UPDATE {table} SET used = ? WHERE key IN ({_marks(part)})"  # noqa: S608
            self._execute(used, [time.time(), *part])
        return bodies

    def _put(self, table: str, bodies: Mapping[str, bytes]) -> None:
        now = time.time()
        rows = [(key, body, xxhash.xxh3_128_hexdigest(body), now) for key, body in bodies.items()]
        insert = f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?, ?)"  # noqa: S608
        with self._lock, self._database:
            self._database.executemany(insert, rows)
        self._shrink()

    def _shrink(self) -> None:
        """Remove the least recently used rows; clients send missing files again."""
        for table in ("trees", "files"):
            total = self._execute(f"SELECT COALESCE(SUM(LENGTH(body)), 0) FROM {table}")[0][0]  # noqa: S608
            if total <= self._max_bytes:
                continue
            excess = total - KEPT_AFTER_EVICTION * self._max_bytes
            sizes = self._execute(f"SELECT key, LENGTH(body) FROM {table} ORDER BY used")  # noqa: S608
            before = accumulate((size for _, size in sizes), initial=0)
            old = [
                key for (key, _), bytes_before in zip(sizes, before, strict=False) if bytes_before < excess
            ]
            for part in _parts(old):
                self._execute(f"DELETE FROM {table} WHERE key IN ({_marks(part)})", part)  # noqa: S608

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock, self._database:
            return self._database.execute(statement, values).fetchall()


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False)
    try:
        database.executescript(SCHEMA)
        (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError:
        database.close()
        raise
    if verdict != "ok":
        database.close()
        raise sqlite3.DatabaseError(verdict)
    return database


def _select(columns: str, table: str, keys: Sequence[str]) -> str:
    return f"SELECT {columns} FROM {table} WHERE key IN ({_marks(keys)})"  # noqa: S608


def _marks(keys: Sequence[str]) -> str:
    return ", ".join("?" * len(keys))


def _parts(keys: list[T]) -> list[list[T]]:
    return [keys[start : start + AT_ONCE] for start in range(0, len(keys), AT_ONCE)]
