"""Supervised rows: a teacher's sessions from the store, and random spans to copy."""

import json
import logging
import random
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from ostinato.store import Ledger, Store
from ostinato.train.base import BEYOND_CONTEXT, StateError
from ostinato.train.batch import Row
from ostinato.train.samples import UntrainableError, demonstrated, rows_of
from ostinato.types import Ending, Sample, Session, Source, State

log = logging.getLogger(__name__)
SPAN = (4, 12)
FIRST_SIGHT_WEIGHT = 0.02


class TeacherRows:
    """The rows of the teacher's sessions, without those that a failure of ours ended.

    They come by task, and within a task as they began: the demonstrations of a task follow one another, so
    which lesson of several at once ended first changes nothing.

    Sessions whose tokens do not fit together, or with a row of more than `context` tokens, are accounted
    UNTRAINABLE with the reason; the others when they are trained on. Observed tokens weigh `observed`:
    predicting what a tool printed practises copying.
    """

    def __init__(
        self, store: Store, source: Source = Source.TEACHER, *, context: int, observed: float = 0.3
    ) -> None:
        self._store = store
        self._ledger = Ledger(store)
        self._source = source
        self._context = context
        self._observed = observed

    def read(self) -> list[Row]:
        """Return all rows, in an order that the lessons alone decide."""
        ended = self._store.sessions(source=self._source, ended=True)
        whole = [session for session in ended if session.ending is not Ending.INFRASTRUCTURE]
        whole.sort(key=lambda session: (session.task_id or "", session.started_at, session.id))
        return [row_of(sample, self._observed) for sample in self._samples(whole)]

    def trained(self, session_ids: Iterable[str]) -> None:
        """Account these sessions as trained; call it once the weights that learnt from them are on disk."""
        self._ledger.account_sessions(session_ids, State.TRAINED)

    def _samples(self, sessions: Sequence[Session]) -> list[Sample]:
        samples: list[Sample] = []
        turns = self._store.turns_of(session.id for session in sessions)
        for id in (session.id for session in sessions if session.id in turns):
            try:
                rows = rows_of(turns[id])
            except UntrainableError as error:
                self._leave_out(id, error.reason, str(error))
                continue
            longest = max((len(row.ids) for row in rows), default=0)
            if longest > self._context:
                self._leave_out(id, BEYOND_CONTEXT, f"session {id} has a row of {longest} tokens")
                continue
            samples += rows
        return samples

    def _leave_out(self, id: str, reason: str, detail: str) -> None:
        log.warning("left out: %s", detail)
        self._ledger.account_sessions([id], State.UNTRAINABLE, reason)


def chosen_rows(path: Path, observed: float) -> list[Row]:
    """Return the rows of the sessions that a file names by their record, in its order. Raises StateError."""
    rows: list[Row] = []
    for place, ids in json.loads(path.read_text()).items():
        with closing(Store.open(place)) as store:
            turns = store.turns_of(ids)
        if gone := [id for id in ids if id not in turns]:
            raise StateError(f"{place} has session {gone[0]} no longer: begin anew with --fresh")
        rows += [row_of(sample, observed) for id in ids for sample in demonstrated(turns[id])]
    return rows


def row_of(sample: Sample, observed: float) -> Row:
    """Return a row in which sampled tokens count 1 and observed ones `observed`."""
    return Row(
        ids=sample.ids,
        weights=tuple(1.0 if sampled else observed for sampled in sample.mask),
        session_id=sample.session_id,
    )


def induction_row(vocab_size: int, rng: random.Random) -> Row:
    """Return a random span two and a half times over, which only copying can predict."""
    span = [rng.randrange(vocab_size) for _ in range(rng.randint(*SPAN))]
    again = [*span, *span[: len(span) // 2]]
    return Row(ids=(*span, *again), weights=(*(FIRST_SIGHT_WEIGHT for _ in span), *(1.0 for _ in again)))


class Pool:
    """The rows to draw from, at least one. Each is drawn once before any is drawn again."""

    def __init__(self, rows: Sequence[Row], rng: random.Random) -> None:
        self._rng = rng
        self._rows = rows
        self._queue: list[Row] = []

    def draw(self, batches: int, size: int) -> list[list[Row]]:
        """Return `batches` of `size` rows of similar length, in random order."""
        while len(self._queue) < batches * size:
            self._queue = self._rng.sample(self._rows, len(self._rows)) + self._queue
        drawn = sorted((self._queue.pop() for _ in range(batches * size)), key=lambda row: row.length)
        cut = [drawn[start : start + size] for start in range(0, len(drawn), size)]
        self._rng.shuffle(cut)
        return cut
