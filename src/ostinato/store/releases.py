"""The steps of a candidate on its way to people: one row each, never changed.

The last row of an experiment says where it is, so a process that was killed goes on from there. A row and the
arms that belong to it are written in one transaction, and no row follows one that ends a release: whoever
rolls back first has the last word.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Connection, func, select

from ostinato.store.sql import schema
from ostinato.store.sql.arms import arms_of, put_arms
from ostinato.store.store import Store
from ostinato.types import Arm


class ReleaseStage(StrEnum):
    """The stage of a release."""

    CANARY = "canary"
    RAMP = "ramp"
    SPLIT = "split"
    OVER = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One row: an experiment entered this step.

    >>> Release(experiment="e1", stage=ReleaseStage.CANARY, step=0, share=0.1, at=0.0).detail
    ''
    """

    experiment: str
    stage: ReleaseStage
    step: int
    """The number of the step in the plan, from 0 on."""
    share: float
    """The share of users on the challenger."""
    at: float
    """The moment at which it was entered, in seconds since the epoch."""
    detail: str = ""
    """The reason why it is over."""


def last_release(store: Store, experiment: str) -> Release | None:
    """Return where an experiment is; None when it has not begun."""
    with store.database.read() as connection:
        return _last(connection, experiment)


def releases(store: Store, experiment: str) -> list[Release]:
    """Return the steps of an experiment in their order."""
    query = select(schema.releases).where(schema.releases.c.experiment == experiment)
    with store.database.read() as connection:
        rows = connection.execute(query.order_by(schema.releases.c.order)).mappings()
        return [_release_of(row) for row in rows]


def last_promotion(store: Store) -> float:
    """Return the moment of the last release that ended in a promotion, 0.0 before the first."""
    column = schema.releases.c
    ended = select(func.max(column.at)).where(
        column.stage == ReleaseStage.OVER.value, column.detail.like("promote%")
    )
    with store.database.read() as connection:
        return connection.scalar(ended) or 0.0


def enter(
    store: Store,
    experiment: str,
    stage: ReleaseStage,
    *,
    step: int,
    share: float,
    arms: Callable[[Sequence[Arm]], Sequence[Arm]],
    detail: str = "",
) -> Release:
    """Enter a step, and replace the arms by what `arms` makes of the present ones, in one transaction.

    Return the row that holds now: of an experiment that is over, the row that ended it, and nothing changes;
    of one that is in this very step already, that row, while the arms are set again.
    """
    with store.database.write() as connection:
        last = _last(connection, experiment)
        if last is not None and last.stage is ReleaseStage.OVER:
            return last
        put_arms(store.database, connection, arms(arms_of(connection)))
        if last is not None and (last.stage, last.step) == (stage, step):
            return last
        entered = Release(
            experiment=experiment, stage=stage, step=step, share=share, at=store.now(), detail=detail
        )
        row = {name: getattr(entered, name) for name in ("experiment", "at", "step", "share", "detail")}
        connection.execute(schema.releases.insert(), row | {"stage": stage.value})
        return entered


def _last(connection: Connection, experiment: str) -> Release | None:
    query = select(schema.releases).where(schema.releases.c.experiment == experiment)
    newest_first = query.order_by(schema.releases.c.order.desc()).limit(1)
    return next((_release_of(row) for row in connection.execute(newest_first).mappings()), None)


def _release_of(row: object) -> Release:
    fields = dict(row)  # type: ignore[call-overload]
    del fields["order"]
    return Release(**fields | {"stage": ReleaseStage(fields["stage"])})
