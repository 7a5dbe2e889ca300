"""Supervised rows: a teacher's sessions from the store, as they end, and random spans to copy."""

import logging
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ostinato.store import Ledger, Store
from ostinato.train.base import BEYOND_CONTEXT, StateError
from ostinato.train.batch import Row
from ostinato.train.journal import Journal
from ostinato.train.samples import UntrainableError, rows_of
from ostinato.types import Ending, Sample, Session, Source, State

log = logging.getLogger(__name__)
SPAN = (4, 12)
FIRST_SIGHT_WEIGHT = 0.02


class TeacherRows:
    """A source of new rows: each call returns those of the teacher's sessions that ended since the last call,
    without the sessions that a failure of ours ended.

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
        self._returned: set[str] = set()

    def __call__(self) -> list[Row]:
        ended = self._store.sessions(source=self._source, ended=True)
        new = [session for session in ended if session.id not in self._returned]
        self._returned |= {session.id for session in new}
        new = [session for session in new if session.ending is not Ending.INFRASTRUCTURE]
        return [row_of(sample, self._observed) for sample in self._samples(new)]

    def trained(self, session_ids: Iterable[str]) -> None:
        """Account these sessions as trained; call it once the weights that learnt from them are on disk."""
        self._ledger.account_sessions(session_ids, State.TRAINED)

    def _samples(self, sessions: Sequence[Session]) -> list[Sample]:
        samples: list[Sample] = []
        for id, turns in self._store.turns_of(session.id for session in sessions).items():
            try:
                rows = rows_of(turns)
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


class Arrivals:
    """The rows of a source as they arrive, noted on disk: a resumed run gets each at the same step again.

    Lessons end while they are learnt from, so the rows that a step can draw from depend on time. Every look
    is a line in `path`; a step that is done again gets the rows of its line, even if more have arrived since.
    """

    def __init__(self, rows: Callable[[], Sequence[Row]], path: Path) -> None:
        self._rows = rows
        self._journal = Journal(path)
        self._noted: dict[int, list[list[str]]] = defaultdict(list)
        for line in self._journal.lines():
            self._noted[line["step"]].append(line["sessions"])
        self._waiting: dict[str, list[Row]] = {}

    def at(self, step: int) -> list[Row]:
        """Return the rows that are new at this look. Raises StateError when a noted session is missing."""
        noted = self._noted.get(step)
        if not noted:
            self._take()
            sessions = list(self._waiting)
            self._journal.add({"step": step, "sessions": sessions})
        else:
            sessions = noted.pop(0)
            if not self._waiting.keys() >= set(sessions):
                self._take()
        try:
            return [row for id in sessions for row in self._waiting.pop(id)]
        except KeyError as error:
            raise StateError(
                f"{self._journal.path} names session {error}, which the store does not hold: the run cannot "
                "go on as it began, delete its folder to begin again"
            ) from error

    def sync(self) -> None:
        """Write all looks to disk for good; a saved state relies on them."""
        self._journal.sync()

    def _take(self) -> None:
        for row in self._rows():
            if row.session_id is None:
                raise ValueError("a row from a source must name its session")
            self._waiting.setdefault(row.session_id, []).append(row)


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
    """All rows so far. Each is drawn once before any is drawn again; new ones are drawn first."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._rows: list[Row] = []
        self._queue: list[Row] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: Sequence[Row]) -> None:
        self._rows += rows
        self._queue += self._rng.sample(rows, len(rows))

    def draw(self, batches: int, size: int) -> list[list[Row]]:
        """Return `batches` of `size` rows of similar length, in random order. The pool must not be empty."""
        while len(self._queue) < batches * size:
            self._queue = self._rng.sample(self._rows, len(self._rows)) + self._queue
        drawn = sorted((self._queue.pop() for _ in range(batches * size)), key=lambda row: row.length)
        cut = [drawn[start : start + size] for start in range(0, len(drawn), size)]
        self._rng.shuffle(cut)
        return cut
