"""The lineage of a version: sessions and signals ─► rewards ─► batch ─► version ─► report ─► verdict.

Everything is read from the store, nothing is kept beside it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import select

from ostinato.store import Store
from ostinato.store.sql.chunks import chunks
from ostinato.store.sql.schema import samples
from ostinato.types import Checkpoint, Report, Reward, Session, Signal, Verdict


class LineageError(LookupError):
    """The version was never recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One session that a version was trained on, and the facts behind its advantage."""

    session: Session
    signals: tuple[Signal, ...]
    rewards: tuple[Reward, ...]
    """Every reward ever computed for it, oldest first; each names its definition."""
    advantage: float
    removed: bool = False
    """True when its tokens and signals were purged or went for their age: the facts are no longer here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """One version with everything it was made from and everything that was decided about it."""

    version: Checkpoint
    trained: tuple[Trained, ...]
    reports: tuple[Report, ...]
    verdicts: tuple[Verdict, ...]


def lineage(store: Store, version: int) -> list[Ancestor]:
    """Return the version, its parent and so on to the first. Raises LineageError."""
    rows = {row.version: row for row in store.versions()}
    ancestors: list[Ancestor] = []
    at: int | None = version
    while at is not None:
        if at not in rows:
            raise LineageError(f"version {at} is not in {store.database.where}: was it published from there?")
        ancestors.append(_ancestor(store, rows[at]))
        at = rows[at].parent
    return ancestors


def _ancestor(store: Store, row: Checkpoint) -> Ancestor:
    return Ancestor(
        version=row,
        trained=tuple(_trained(store, row.batch)),
        reports=tuple(store.reports(row.version)),
        verdicts=tuple(store.verdicts(row.version)),
    )


def _trained(store: Store, groups: Sequence[str]) -> Iterable[Trained]:
    advantages = _advantages(store, groups)
    signals, removed = store.signals_of(advantages), store.purged(advantages)
    for id, advantage in advantages.items():
        session = store.session(id)
        if session is None:
            raise LineageError(f"session {id!r} was trained on but is not in {store.database.where}")
        yield Trained(
            session=session,
            signals=tuple(signals.get(id, ())),
            rewards=tuple(store.rewards(id)),
            advantage=advantage,
            removed=id in removed,
        )


def _advantages(store: Store, groups: Sequence[str]) -> dict[str, float]:
    """Return session id ─► advantage, in the order of the groups; segments of a session share one."""
    column = samples.c
    advantages: dict[str, float] = {}
    for ids in chunks(groups):
        query = select(column.session_id, column.advantage).where(column.group_id.in_(ids))
        with store.database.read() as connection:
            ordered = connection.execute(query.order_by(column.group_id, column.position))
            advantages |= {row.session_id: row.advantage for row in ordered}
    return advantages


def tree(ancestors: Sequence[Ancestor], sessions: int = 3) -> str:
    """Return the lineage as indented text, newest first, with `sessions` examples of each batch."""
    return "\n".join(line for ancestor in ancestors for line in _lines(ancestor, sessions))


def _lines(ancestor: Ancestor, sessions: int) -> Iterable[str]:
    row, trained = ancestor.version, ancestor.trained
    yield f"version {row.version} ({row.kind}, {row.bytes} bytes, {row.digest[:12]})"
    if trained:
        yield f"  trained on {len(trained)} sessions in {len(row.batch)} groups"
    yield from (f"    {_example(example)}" for example in trained[:sessions])
    yield from (f"  report {report.id[:8]}: {_scores(report)}" for report in ancestor.reports)
    yield from (f"  verdict {v.id[:8]}: {v.decision} ({v.reason})" for v in ancestor.verdicts)


def _example(trained: Trained) -> str:
    told = ", ".join(f"{signal.kind}={_short(signal.value)}" for signal in trained.signals)
    facts = "removed since" if trained.removed else told
    reward = (
        f"{trained.rewards[-1].total:+.2f} by {trained.rewards[-1].definition}" if trained.rewards else "none"
    )
    return f"{trained.session.id[:8]}: {facts} -> reward {reward} -> advantage {trained.advantage:+.2f}"


def _short(value: float | str) -> str:
    return value[:20] if isinstance(value, str) else f"{value:g}"


def _scores(report: Report) -> str:
    return ", ".join(f"{split} {score.solve:.0%} of {score.n}" for split, score in report.scores.items())
