"""Immutable objects by key, in a folder, in memory or in a bucket.

An object is created once and never changes.
"""

import os
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import LocalStore, MemoryStore, ObjectStore, from_url

from ostinato import extras
from ostinato.store.watch import Watch

FULL = ("os error 28", "os error 27", "os error 122")
"""The object store's texts for a full disk: no space left on device, file too large, quota exceeded."""
RETRIES: Any = {
    "max_retries": 1000,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=2), "base": 2},
}
"""A bucket that throttles, fails or does not answer is asked again, with growing pauses, for a minute: its
server may have been started again by then."""
ASKED_AGAIN = timedelta(seconds=60)
"""The time after which a profile is asked for its credentials again; it renews them before they expire."""
MARK = "writer"
"""The attribute of an object in a bucket that says which call created it."""
ADVICE = {
    "ExpiredToken": "the credentials have expired: renew them, or let AWS_PROFILE name some that renew",
    "RequestTimeTooSkewed": "the clock of this machine is more than 15 minutes from the bucket's: set it, "
    "and keep it right with NTP (`timedatectl set-ntp true`)",
    "InvalidAccessKeyId": "check AWS_ACCESS_KEY_ID, or the profile",
    "SignatureDoesNotMatch": "check AWS_SECRET_ACCESS_KEY, or the profile",
    "necessary privileges": "let the credentials read, write and list the bucket",
    "SlowDown": "the bucket throttled for longer than a minute: ask it less, or spread it over prefixes",
}
"""The remedies for some refusals, by a part of their texts."""
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
            return cls(MemoryStore() if where == "memory://" else _bucket(where), where)

    def create(self, key: str, data: bytes) -> None:
        """Write all of `data` or nothing; it is on the disk when this returns.

        Raises AlreadyExists, StorageFull.
        """
        with _named(self.where, key):
            if self._folder is None:
                self._create_marked(key, data)
                return
            obstore.put(self._store, key, data, mode="create", use_multipart=False)
            self._sync(self._folder / key)

    def _create_marked(self, key: str, data: bytes) -> None:
        """Create an object with a mark of this call.

        An answer may be lost after the object was written. The library asks again then, and is told that the
        object exists; the mark says whose it is.
        """
        mark = uuid.uuid4().hex
        try:
            obstore.put(self._store, key, data, mode="create", use_multipart=False, attributes={MARK: mark})
        except AlreadyExistsError:
            if obstore.get(self._store, key, options={"head": True}).attributes.get(MARK) != mark:
                raise

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


def _bucket(where: str) -> ObjectStore:
    """Return a bucket. Its credentials come from the environment, the machine's role, or AWS_PROFILE.

    Raises ValueError when AWS_PROFILE names a profile and nothing here can read it.
    """
    if not where.startswith("s3") or "AWS_PROFILE" not in os.environ:
        return from_url(where, retry_config=RETRIES)
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise ValueError(extras.sentence("boto3", "AWS_PROFILE")) from error
    try:
        provider: Any = Boto3CredentialProvider(ttl=ASKED_AGAIN)
    except Exception as error:  # boto3's own errors have no common class
        raise ValueError(
            f"the profile {os.environ['AWS_PROFILE']!r} gives no credentials: {error}"
        ) from error
    return from_url(where, retry_config=RETRIES, credential_provider=provider)


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
        advice = next((f": {advice}" for text, advice in ADVICE.items() if text in str(error)), "")
        raise ObjectsError(f"{where}: {key}: {cause}{advice}") from error
