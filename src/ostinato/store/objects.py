"""Immutable objects by key: a folder, memory, or a bucket. An object is created once and never changed."""

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
"""No space left on device, file too large, quota exceeded: how the object store spells a full disk."""


AHEAD = 8
"""Objects of one stream that are under way or wait to be taken: what memory it may cost."""


class ObjectsError(Exception):
    """The object store could not do what was asked; the message says what, where and what to do."""


class AlreadyExists(ObjectsError):  # noqa: N818
    """Somebody created this key before; nothing was written."""


class Missing(ObjectsError):  # noqa: N818
    """There is no object under this key."""


class StorageFull(ObjectsError):  # noqa: N818
    """No space left; nothing was written under the key."""


class Objects:
    """Thread-safe and shared by any number of processes. A key is a path with `/`, without a leading one."""

    def __init__(self, store: ObjectStore, where: str, folder: Path | None = None) -> None:
        self._store = store
        self.where = where
        self._folder = folder
        """Where the objects are files; None for memory and buckets."""
        self._known = {folder}
        """Folders whose own names are on the disk."""

    @classmethod
    def open(cls, url_or_path: str | Path) -> Self:
        """A folder (created if needed), or a URL: `memory://`, `file:///…`, `s3://bucket/prefix`, `gs://`, `az://`."""
        where = str(url_or_path)
        with _named(where, "open"):
            if "://" not in where or where.startswith("file://"):
                folder = Path(where.removeprefix("file://")).absolute()
                return cls(LocalStore(folder, mkdir=True), where, folder)
            return cls(MemoryStore() if where == "memory://" else from_url(where), where)

    def create(self, key: str, data: bytes) -> None:
        """Write all of `data` or nothing; on the disk for good when this returns. Raises AlreadyExists,
        StorageFull."""
        with _named(self.where, key):
            obstore.put(self._store, key, data, mode="create", use_multipart=False)
            if self._folder is not None:
                self._sync(self._folder / key)

    def _sync(self, path: Path) -> None:
        """A bucket keeps what it acknowledged; a folder only what was flushed, its name included."""
        _sync(path)
        for folder in path.parents:
            sync_folder(folder)
            if folder in self._known:
                break
            self._known.add(folder)

    def get(self, key: str) -> bytes:
        """Raises Missing."""
        with _named(self.where, key):
            return bytes(obstore.get(self._store, key).bytes())

    @contextmanager
    def stream(self, keys: Sequence[str]) -> Iterator[Iterator[bytes]]:
        """What lies under each of `keys`, in order, the next ones under way while one is used. Raises
        Missing when it is taken.
        """
        if len(keys) < 2:
            yield map(self.get, keys)
            return
        # Not left to the garbage collector: it may run inside of a lock of `threading`, and to join threads
        # there takes that lock again, for ever.
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
        """All keys below the folder `prefix`, sorted."""
        return sorted(self.sizes(prefix))

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Key and bytes of everything below the folder `prefix`."""
        with _named(self.where, prefix):
            pages = obstore.list(self._store, prefix)
            return {found["path"]: found["size"] for page in pages for found in page}

    def watch(self, prefix: str) -> Watch:
        """Tells of new objects in the folder `prefix`, but not of those in folders in it. To be closed."""
        return Watch(None if self._folder is None else self._folder / prefix)

    def delete(self, key: str) -> None:
        """Only for what nobody needs any more. Raises Missing, or not, as the store will have it."""
        with _named(self.where, key):
            obstore.delete(self._store, key)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder, so that a file made or renamed there outlives a power failure."""
    _sync(folder)


def _sync(path: Path) -> None:
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
        cause, *_ = str(error).partition(
            "\n"
        )  # below the first line the object store repeats itself at length
        if any(sign in cause for sign in FULL):
            raise StorageFull(f"{where}: no space left to write {key}; free some and try again") from error
        raise ObjectsError(f"{where}: {key}: {cause}") from error
