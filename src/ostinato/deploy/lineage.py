"""The lineage of a version: sessions and signals ─► rewards ─► batch ─► version ─► report ─► verdict.

Everything is read from the store, nothing is kept beside it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import select

from ostinato.deploy.late import Promotion, promotions
from ostinato.store import Store
from ostinato.store.sql.chunks import chunks
from ostinato.store.sql.schema import samples
from ostinato.types import Checkpoint, Report, Reward, Session, Signal, SignalKind, Verdict, completed
from ostinato.web.plain import line_of


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
    promotion: Promotion | None = None
    """The fate of its promotion; None for a version that was not promoted."""


def lineage(store: Store, version: int) -> list[Ancestor]:
    """Return the version, its parent and so on to the first. Raises LineageError."""
    rows = {row.version: row for row in store.versions()}
    promoted = {each.version: each for each in promotions(store)}
    ancestors: list[Ancestor] = []
    at: int | None = version
    while at is not None:
        if at not in rows:
            raise LineageError(f"version {at} is not in {store.database.where}: was it published from there?")
        ancestors.append(_ancestor(store, rows[at], promoted.get(at)))
        at = rows[at].parent
    return ancestors


def _ancestor(store: Store, row: Checkpoint, promotion: Promotion | None) -> Ancestor:
    return Ancestor(
        version=row,
        trained=tuple(_trained(store, row.batch)),
        reports=tuple(store.reports(row.version)),
        verdicts=tuple(store.verdicts(row.version)),
        promotion=promotion,
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


def version_meant(store: Store, given: str) -> int:
    """Return the version that a person means by its number, or by its digest or the beginning of it.

    Raises IdError for a digest that is none, or several.
    """
    digests = {row.digest: row.version for row in store.versions()}
    if given.lstrip("-").isdecimal() and (int(given) in digests.values() or given not in digests):
        return int(given)
    return digests[completed(given, digests, noun="version", where=store.database.where)]


def tree(ancestors: Sequence[Ancestor], sessions: int = 3, short: Callable[[str], str] = str) -> str:
    """Return the lineage as indented text, newest first, with `sessions` examples of each batch.

    Each fact has one line, whatever its text holds. `short` abbreviates the ids of sessions.
    """
    return "\n".join(line for ancestor in ancestors for line in _lines(ancestor, sessions, short))


def _lines(ancestor: Ancestor, sessions: int, short: Callable[[str], str]) -> Iterable[str]:
    row, trained = ancestor.version, ancestor.trained
    yield f"version {row.version} ({row.kind}, {row.bytes:,} bytes, {row.digest[:12]})"
    if trained:
        shown = min(sessions, len(trained))
        yield f"  trained on {len(trained)} sessions in {len(row.batch)} groups, of which {shown}:"
    yield from (f"    {_example(example, short(example.session.id))}" for example in trained[:sessions])
    yield from (f"  report {report.id[:8]}: {_scores(report)}" for report in ancestor.reports)
    yield from (f"  verdict {v.id[:8]}: {v.decision} ({line_of(v.reason, 400)})" for v in ancestor.verdicts)
    if ancestor.promotion is not None:
        yield f"  promotion: {ancestor.promotion.standing}"


def _example(trained: Trained, name: str) -> str:
    reward = "no reward"
    if trained.rewards:
        reward = f"reward {trained.rewards[-1].total:+.2f} by {trained.rewards[-1].definition}"
    ending = trained.session.ending or "open"
    facts = "removed since" if trained.removed else f"{ending}{_facts(trained.signals)}"
    return f"{line_of(name)}  {reward}  advantage {trained.advantage:+.2f}  {facts}"


def _facts(signals: Sequence[Signal]) -> str:
    """Return the signals but for the ending, each as `, kind=value`; equal ones are counted."""
    counted = Counter(f"{s.kind}={_short(s)}" for s in signals if s.kind is not SignalKind.ENDING)
    return "".join(f", {fact}" + (f" ({n} times)" if n > 1 else "") for fact, n in counted.items())


def _short(signal: Signal) -> str:
    if not isinstance(signal.value, str):
        return f"{signal.value:g}"
    if signal.kind is not SignalKind.PATCH:
        return line_of(signal.value, 40)
    lines = signal.value.splitlines()
    added, taken = (sum(each[:1] == sign and each[:3] != 3 * sign for each in lines) for sign in "+-")
    return f"+{added}/-{taken} lines"


def _scores(report: Report) -> str:
    return ", ".join(f"{split} {score.words}" for split, score in report.scores.items())
