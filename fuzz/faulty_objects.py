"""A fake object store that fails by plan, for the tests and fuzzes of everything that must survive it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum

from ostinato.store import AlreadyExists, Missing, Objects, ObjectsError, Watch


class Fault(StrEnum):
    """The fate of one request. The last four give the caller no sign that anything went wrong."""

    NONE = "none"
    REFUSE = "refuse"
    """Nothing is done, and the caller gets an error."""
    LOSE = "lose"
    """The request is served, but the response is lost."""
    LATE = "late"
    """A write is reported as failed, and arrives when `arrive` is called."""
    PRETEND = "pretend"
    """A write is reported as done, and nothing is there; a read finds nothing where an object is."""
    TRUNCATE = "truncate"
    """Half of the object is written, or read."""
    FLIP = "flip"
    """One bit differs, at rest or on the way."""
    SWAP = "swap"
    """A read returns the contents of another object, a write puts them there."""


Plan = Callable[[str, str], Fault]
"""The fault for an operation (`create`, `get`, `exists`, `sizes`, `delete`) on a key, called once per
request. A fault that has no meaning for the operation is ignored. The plan may also wait, which makes the
store slow."""


class FaultyObjects(Objects):
    """An object store over `objects` that calls `plan` before each request, one request at a time.

    >>> FaultyObjects(Objects.open("memory://"), lambda op, key: Fault.NONE).list()
    []
    """

    def __init__(self, objects: Objects, plan: Plan) -> None:
        self._objects = objects
        self._plan = plan
        self._under_way: list[tuple[str, bytes]] = []
        self.where = objects.where

    def create(self, key: str, data: bytes) -> None:
        fault = self._fault("create", key)
        if fault is Fault.LATE:
            self._under_way.append((key, data))
        elif fault is not Fault.PRETEND:
            self._objects.create(key, self._garbled(fault, key, data))
        if fault in {Fault.LATE, Fault.LOSE}:
            raise ObjectsError(f"{self.where}: {key}: timed out")

    def arrive(self) -> None:
        """Let late writes reach the store, long after their writer gave them up."""
        for key, data in self._under_way:
            with suppress(AlreadyExists):
                self._objects.create(key, data)
        self._under_way.clear()

    def get(self, key: str) -> bytes:
        fault = self._fault("get", key)
        if fault is Fault.PRETEND:
            raise Missing(f"{self.where}: there is no {key}")
        return self._garbled(fault, key, self._objects.get(key))

    @contextmanager
    def stream(self, keys: Sequence[str]) -> Iterator[Iterator[bytes]]:
        yield map(self.get, keys)

    def exists(self, key: str) -> bool:
        return self._fault("exists", key) is not Fault.PRETEND and self._objects.exists(key)

    def sizes(self, prefix: str = "") -> dict[str, int]:
        fault, sizes = self._fault("sizes", prefix), self._objects.sizes(prefix)
        if fault is Fault.PRETEND and sizes:
            sizes.pop(max(sizes))
        return sizes

    def delete(self, key: str) -> None:
        fault = self._fault("delete", key)
        if fault is not Fault.PRETEND:
            self._objects.delete(key)
        if fault is Fault.LOSE:
            raise ObjectsError(f"{self.where}: {key}: timed out")

    def watch(self, prefix: str) -> Watch:
        return self._objects.watch(prefix)

    def _fault(self, operation: str, key: str) -> Fault:
        fault = self._plan(operation, key)
        if fault is Fault.REFUSE or (
            fault in {Fault.LATE, Fault.LOSE} and operation in {"get", "exists", "sizes"}
        ):
            raise ObjectsError(f"{self.where}: {operation} {key}: connection refused")
        return fault

    def _garbled(self, fault: Fault, key: str, data: bytes) -> bytes:
        if fault is Fault.TRUNCATE:
            return data[: len(data) // 2]
        if fault is Fault.FLIP and data:
            at = len(key) * 7919 % len(data)
            return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        if fault is Fault.SWAP:
            others = self._objects.list(key.rpartition("/")[0])
            return self._objects.get(others[0]) if others else b""
        return data
