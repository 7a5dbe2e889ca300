"""Immutable objects by key, in a folder, in memory or in a bucket.

An object is created once and never changes.
"""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import LocalStore, MemoryStore, ObjectStore, from_url

from ostinato.store.watch import Watch

FULL = ("os error 28", "os error 27", "os error 122")
"""The object store's texts for a full disk: no space left on device, file too large, quota exceeded."""
AHEAD = 8
"""Objects of one stream that are under way or wait to be used; this bounds its memory."""


class ObjectsError(Exception):
    """The object store could not serve a request; the message says what, where and what to do."""


class AlreadyExists(ObjectsError):  # noqa: N818
    """The key was created before; nothing was written."""


class Missing(ObjectsError):  # noqa: N818
    """There is no object under this key."""


class StorageFull(ObjectsError):  # noqa: N818
    """There is no space left; nothing was written under the key."""


class Objects:
    """A thread-safe object store that any number of processes share.

    A key is a path without a leading `/`.
    """

    def __init__(self, store: ObjectStore, where: str, folder: Path | None = None) -> None:
        self._store = store
        self.where = where
        self._folder = folder
        """The folder in which the objects are files; None for memory and buckets."""
        self._flushed = {folder}
        """Folders whose entries in their parent folders have been flushed to the disk."""

    @classmethod
    def open(cls, url_or_path: str | Path) -> Self:
        """Open a folder, which is created if needed, or a URL.

        URLs are `memory://`, `file:///…`, `s3://bucket/prefix`, `gs://…` and `az://…`.
        """
        where = str(url_or_path)
        with _named(where, "open"):
            if "://" not in where or where.startswith("file://"):
                folder = Path(where.removeprefix("file://")).absolute()
                return cls(LocalStore(folder, mkdir=True), where, folder)
            return cls(MemoryStore() if where == "memory://" else from_url(where), where)

    def create(self, key: str, data: bytes) -> None:
        """Write all of `data` or nothing; it is on the disk when this returns.

        Raises AlreadyExists, StorageFull.
        """
        with _named(self.where, key):
            obstore.put(self._store, key, data, mode="create", use_multipart=False)
            if self._folder is not None:
                self._sync(self._folder / key)

    def _sync(self, path: Path) -> None:
        """Flush a file, its name and those of its folders, since a local disk keeps only what was flushed."""
        flush(path)
        for folder in path.parents:
            flush(folder)
            if folder in self._flushed:
                break
            self._flushed.add(folder)

    def get(self, key: str) -> bytes:
        """Return the bytes of an object. Raises Missing."""
        with _named(self.where, key):
            return bytes(obstore.get(self._store, key).bytes())

    @contextmanager
    def stream(self, keys: Sequence[str]) -> Iterator[Iterator[bytes]]:
        """Yield an iterator over the objects under `keys`, in order; the next ones are fetched meanwhile.

        The iterator raises Missing when it comes to a key that is not there.
        """
        if len(keys) < 2:
            yield map(self.get, keys)
            return
        # The pool is not left to the garbage collector: that may run while a lock of `threading` is held, and
        # joining threads takes the same lock, so it would wait for ever.
        pool = ThreadPoolExecutor(AHEAD, thread_name_prefix="objects")
        try:
            yield self._in_order(pool, keys)
        finally:
            pool.shutdown(cancel_futures=True)

    def _in_order(self, pool: ThreadPoolExecutor, keys: Sequence[str]) -> Iterator[bytes]:
        waiting: deque[Future[bytes]] = deque()
        for key in keys:
            waiting.append(pool.submit(self.get, key))
            if len(waiting) == AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def exists(self, key: str) -> bool:
        try:
            with _named(self.where, key):
                obstore.head(self._store, key)
        except Missing:
            return False
        return True

    def list(self, prefix: str = "") -> list[str]:
        """Return all keys below the folder `prefix`, sorted."""
        return sorted(self.sizes(prefix))

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Return the key and the size in bytes of every object below the folder `prefix`."""
        with _named(self.where, prefix):
            pages = obstore.list(self._store, prefix)
            return {entry["path"]: entry["size"] for page in pages for entry in page}

    def watch(self, prefix: str) -> Watch:
        """Return a watch for new objects in the folder `prefix`, not in folders below it.

        Close it after use.
        """
        return Watch(None if self._folder is None else self._folder / prefix)

    def delete(self, key: str) -> None:
        """Delete an object that nobody needs any more. Some stores raise Missing when it is not there."""
        with _named(self.where, key):
            obstore.delete(self._store, key)


def flush(path: Path) -> None:
    """Flush a file, or the names in a folder, so that it outlives a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _named(where: str, key: str) -> Iterator[None]:
    try:
        yield
    except AlreadyExistsError as error:
        raise AlreadyExists(f"{where}: {key} exists already and objects never change") from error
    except (NotFoundError, FileNotFoundError) as error:
        raise Missing(f"{where}: there is no {key}") from error
    except (BaseError, OSError, ValueError) as error:
        cause = str(error).partition("\n")[
            0
        ]  # the object store repeats itself at length below the first line
        if any(sign in cause for sign in FULL):
            raise StorageFull(f"{where}: no space left to write {key}; free some and try again") from error
        raise ObjectsError(f"{where}: {key}: {cause}") from error
