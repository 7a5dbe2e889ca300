"""Durable before acknowledged: one writer thread that commits whatever has gathered, as one transaction."""

import asyncio
import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ostinato.store import Store, StoreError
from ostinato.types import ApiKey, Event, Session, Signal, Turn

MOST_AT_ONCE = 256
MOST_QUEUED = 8_192
"""What waits holds memory: beyond it the disk is too slow, and whoever comes is told so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRecord:
    """What one request wants recorded, and the future its answer waits for."""

    turn: Turn | None
    signals: Sequence[Signal]
    events: Sequence[Event]
    session: Session | None
    keys: Mapping[str, bool]
    """In whose name, by hash, and whether it is kept only because of their consent."""
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


class Recorder:
    """An entry's future is set once it is committed. Entries of one moment share one commit.

    They gather for one turn of the event loop, then go to the thread together: waking it for each of them
    would cost more than the commit.
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
        """Commits what is queued, then ends the thread."""
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
        """Queue an entry, which is committed whole. The future is set then, or has the StoreError.

        `key`: in whose name. It is looked up again within the transaction; events are told with their text
        where it had consent, so with them the consent is looked up again too.
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
        done.add_done_callback(self._settled)
        if not self._gathered:
            loop.call_soon(self._hand_over)
        self._gathered.append(entry)
        return done

    def _settled(self, _: asyncio.Future[None]) -> None:
        self._waiting -= 1

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
        if error is None or len(entries) == 1:
            _announce(entries, error)
            return
        # One bad entry must not take its neighbours down.
        for entry in entries:
            _announce([entry], self._try([entry]))

    def _try(self, entries: Sequence[PendingRecord]) -> Exception | None:
        try:
            self._store.record(
                [entry.turn for entry in entries if entry.turn is not None],
                [signal for entry in entries for signal in entry.signals],
                [entry.session for entry in entries if entry.session is not None],
                [event for entry in entries for event in entry.events],
                _together(entries),
            )
        except Exception as error:  # whatever it is belongs to the requests that wait
            return error
        return None


def _together(entries: Sequence[PendingRecord]) -> dict[str, bool]:
    """The keys of several entries; one that needs consent anywhere needs it."""
    keys: dict[str, bool] = {}
    for entry in entries:
        for hash, consent in entry.keys.items():
            keys[hash] = keys.get(hash, False) or consent
    return keys


def _announce(entries: Sequence[PendingRecord], error: Exception | None) -> None:
    """One wake-up of the event loop for the whole batch."""

    def settle() -> None:
        for entry in entries:
            if entry.done.cancelled():
                continue
            if error is None:
                entry.done.set_result(None)
            else:
                entry.done.set_exception(error)

    entries[0].loop.call_soon_threadsafe(settle)
