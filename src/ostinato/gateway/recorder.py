"""The recorder: a thread that commits everything that has gathered since its last commit as one
transaction."""

import asyncio
import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ostinato.store import OutcomeUnknownError, Store, StoreError, UnavailableError
from ostinato.types import ApiKey, Event, Session, Signal, Turn

MOST_AT_ONCE = 256
MOST_QUEUED = 8_192
"""Requests that may wait for the disk: each holds memory, so further ones are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRecord:
    """The facts that one request has to record, and the future that its reply waits for."""

    turn: Turn | None
    signals: Sequence[Signal]
    events: Sequence[Event]
    session: Session | None
    keys: Mapping[str, bool]
    """The hash of the key of the request, and whether the facts may be kept only with its consent."""
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


class Recorder:
    """Commits facts in the order in which they are submitted, and sets the future of each once it is on the
    disk.

    Facts that are submitted in one iteration of the event loop go to the thread together: waking it for each
    of them would cost more than the commit.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._gathered: list[PendingRecord] = []
        self._waiting = 0
        self._queue: queue.SimpleQueue[list[PendingRecord] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Commit what is queued, then end the thread."""
        self._hand_over()
        self._queue.put(None)
        self._thread.join()

    def submit(
        self,
        *,
        turn: Turn | None = None,
        signals: Sequence[Signal] = (),
        events: Sequence[Event] = (),
        session: Session | None = None,
        key: ApiKey | None = None,
    ) -> asyncio.Future[None]:
        """Queue facts that are committed together. The future is set then, or has the StoreError.

        `key` is the key of the request. It is looked up again within the transaction, so that nothing is
        recorded for a revoked key. Events hold text only with consent, so for them the consent is looked up
        again too.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        if self._waiting >= MOST_QUEUED:
            done.set_exception(StoreError(f"{MOST_QUEUED} requests wait for the disk"))
            return done
        keys = {} if key is None else {key.hash: bool(events) and key.consent}
        entry = PendingRecord(
            turn=turn, signals=signals, events=events, session=session, keys=keys, loop=loop, done=done
        )
        self._waiting += 1
        if not self._gathered:
            loop.call_soon(self._hand_over)
        self._gathered.append(entry)
        return done

    def _hand_over(self) -> None:
        if self._gathered:
            self._queue.put(self._gathered)
            self._gathered = []

    def _run(self) -> None:
        while (entries := self._queue.get()) is not None:
            last = False
            while len(entries) < MOST_AT_ONCE and not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    last = True
                    break
                entries += more
            self._commit(entries)
            if last:
                return

    def _commit(self, entries: Sequence[PendingRecord]) -> None:
        error = self._try(entries)
        if error is None or len(entries) == 1 or isinstance(error, UnavailableError | OutcomeUnknownError):
            self._announce(entries, error)
            return
        # One bad entry must not fail its neighbours.
        for entry in entries:
            self._announce([entry], self._try([entry]))

    def _try(self, entries: Sequence[PendingRecord]) -> Exception | None:
        try:
            self._store.record(
                [entry.turn for entry in entries if entry.turn is not None],
                [signal for entry in entries for signal in entry.signals],
                [entry.session for entry in entries if entry.session is not None],
                [event for entry in entries for event in entry.events],
                _together(entries),
            )
        except Exception as error:  # any error belongs to the requests that wait
            return error
        return None

    def _announce(self, entries: Sequence[PendingRecord], error: Exception | None) -> None:
        """Set the futures of a batch, with one wake-up of the event loop."""

        def settle() -> None:
            self._waiting -= len(entries)
            for entry in entries:
                if entry.done.cancelled():
                    continue
                if error is None:
                    entry.done.set_result(None)
                else:
                    entry.done.set_exception(error)

        entries[0].loop.call_soon_threadsafe(settle)


def _together(entries: Sequence[PendingRecord]) -> dict[str, bool]:
    """Return the keys of all entries; a key needs consent if any of its entries does."""
    keys: dict[str, bool] = {}
    for entry in entries:
        for hash, consent in entry.keys.items():
            keys[hash] = keys.get(hash, False) or consent
    return keys
