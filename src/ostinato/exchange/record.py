"""The record in a notebook: `o.open("runs/serve")`, read only, also while a gateway writes it."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

from ostinato.exchange.tables import Table
from ostinato.store import Store
from ostinato.store.abbreviation import session_meant
from ostinato.store.config import meant_record, shown
from ostinato.store.pages import chosen_sessions
from ostinato.store.sql.chunks import last_rows
from ostinato.store.sql.database import Database
from ostinato.store.sql.row_conversion import reward_of
from ostinato.store.sql.schema import rewards
from ostinato.types import Checkpoint, Reward, Session, Signal, Source, Turn, Verdict

T = TypeVar("T")
SESSIONS, WITH_TURNS = 500, 20
"""The sessions of one page, and of one that is read with its turns, which may have a megabyte each."""


class Chosen(TypedDict, total=False):
    """The sessions that are meant: those of a source, of an arm, of a user, and since a moment.

    >>> Chosen(source="live", since=0.0)["source"]
    'live'
    """

    source: Source | str
    arm: str
    user: str
    since: float
    """The moment in seconds since the epoch."""


class OpenRecord:
    """A record that is read and never changed: it takes no lock that a writer waits for.

    Whoever can open it is its operator, and reads the text of every session; only sessions for which
    `consented` is true may be trained on, or shown to other people. Purged sessions are not there.
    """

    def __init__(self, store: Store, folder: Path | None = None) -> None:
        self.store = store
        self.folder = folder
        """The run folder, where the record has one."""

    def __repr__(self) -> str:
        return f"the record {shown(self.store.database.where)}, to be read as its operator"

    def sessions(self, **chosen: Unpack[Chosen]) -> Table[Session]:
        """Return the sessions that are meant, oldest first."""
        return Table(pages=lambda: self.pages(SESSIONS, chosen))

    def session(self, given: str) -> Session:
        """Return the session of an id, or of the beginning of one. Raises IdError."""
        found = self.store.session(session_meant(self.store, given))
        assert found is not None
        return found

    def turns(self, of: Session | str | None = None, **chosen: Unpack[Chosen]) -> Table[Turn]:
        """Return the turns of one session, or of all that are meant, by session and in order."""
        return self._of_sessions(WITH_TURNS, of, chosen, self.store.turns_of)

    def signals(self, of: Session | str | None = None, **chosen: Unpack[Chosen]) -> Table[Signal]:
        """Return the signals of one session, or of all that are meant, by session and time observed."""
        return self._of_sessions(SESSIONS, of, chosen, self.store.signals_of)

    def rewards(self, of: Session | str | None = None, **chosen: Unpack[Chosen]) -> Table[Reward]:
        """Return the last recorded reward of one session, or of all that are meant."""
        return self._of_sessions(SESSIONS, of, chosen, self.last_rewards)

    def reward(self, of: Session | str) -> Reward | None:
        """Return the last recorded reward of a session, with its parts; None when it was never scored."""
        return next(iter(self.rewards(of)), None)

    def versions(self) -> Table[Checkpoint]:
        """Return every published version of the weights."""
        return Table(pages=lambda: iter([self.store.versions()]))

    def verdicts(self) -> Table[Verdict]:
        """Return every decision about a version, in the order in which they were made."""
        return Table(pages=lambda: iter([self.store.verdicts()]))

    def consented(self, sessions: Sequence[Session]) -> set[str]:
        """Return the ids of those of these sessions that may be trained on: their people agreed when they
        began, and still do."""
        return {session.id for session in self.store.accounts.may_train_on(sessions)}

    def close(self) -> None:
        self.store.close()

    def pages(self, size: int, chosen: Chosen) -> Iterator[list[Session]]:
        return chosen_sessions(
            self.store,
            size,
            source=Source(chosen["source"]) if "source" in chosen else None,
            arm=chosen.get("arm"),
            user=chosen.get("user"),
            since=chosen.get("since", 0.0),
        )

    def _of_sessions(
        self,
        size: int,
        of: Session | str | None,
        chosen: Chosen,
        read: Callable[[list[str]], dict[str, list[T]]],
    ) -> Table[T]:
        def pages() -> Iterator[list[T]]:
            one = None if of is None else self.session(of) if isinstance(of, str) else of
            for page in self.pages(size, chosen) if one is None else ([one],):
                found = read([session.id for session in page])
                yield [noun for session in page for noun in found.get(session.id, ())]

        return Table(pages=pages)

    def last_rewards(self, ids: Sequence[str]) -> dict[str, list[Reward]]:
        with self.store.database.read() as connection:
            rows = last_rows(connection, rewards, ids)
            return {id_: [reward_of(row._mapping)] for id_, row in rows.items()}


def open(record: str | Path = "") -> OpenRecord:
    """Open a record to read it: a run folder, a SQLite file, or the URL of a database.

    Without a name it is the one that every command means: OSTINATO_RECORD, else the only one below `runs/`.
    It may be read while a gateway writes it. Raises StoreError, which lists the records that there are.
    """
    folder = Path(record) if record and Path(record).is_dir() else None
    meant = meant_record(folder, str(record) if record and folder is None else None)
    return OpenRecord(Store(Database(meant.place, read_only=True)), meant.folder)
