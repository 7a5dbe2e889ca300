"""The log of the cycle: what it did and what people told it to do, one row each, never changed.

It is the audit trail, and the only state that the commands of `ostinato cycle` share with a running cycle.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import select

from ostinato.store.sql import schema
from ostinato.store.store import Store


class CycleAction(StrEnum):
    """The actions that are logged: those of people come last, the others are the cycle's own."""

    STAGE_BEGAN = "stage_began"
    STAGE_DONE = "stage_done"
    CYCLE_DONE = "cycle_done"
    TRIAL_OPENED = "trial_opened"  # a candidate is on its way to people; the detail is its cycle
    TRIAL_BEGAN = "trial_began"  # the detail is the terms of the trial, as JSON
    TRIAL_CLOSED = "trial_closed"  # the detail is the decision and its reason
    SUPERSEDED = "superseded"  # an admitted candidate meets nobody; the detail says for what
    ALARM = "alarm"  # a monitor sounded
    PUT_BACK = "put_back"  # what a demoted promotion had replaced is served again; the detail is its trial
    SEALED_OPENED = "sealed_opened"  # held-out tasks were opened for a claim; the detail is JSON
    PAUSE = "pause"
    RESUME = "resume"
    ABORT = "abort"
    PROMOTE = "promote"
    ROLL_BACK = "roll_back"
    CONFIRM = "confirm"  # a provisional promotion stays, or is taken back
    DEMOTE = "demote"


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleEntry:
    """One row of the log.

    >>> CycleEntry(at=0.0, by="ada", action=CycleAction.PAUSE).cycle
    ''
    """

    at: float
    by: str
    action: CycleAction
    cycle: str = ""
    """The name of the cycle or trial that it is about, as `cycle-3` or `trial-of-12`."""
    detail: str = ""
    """The stage, the decision or the person's reason."""


def log_cycle(store: Store, entry: CycleEntry) -> None:
    """Append one entry."""
    row: Mapping[str, object] = {
        "at": entry.at,
        "by": entry.by,
        "action": entry.action.value,
        "cycle": entry.cycle,
        "detail": entry.detail,
    }
    with store.database.write() as connection:
        connection.execute(schema.cycle_log.insert(), [row])


def cycle_log(store: Store, *, since: float = 0.0) -> list[CycleEntry]:
    """Return the entries from `since` on (seconds since the epoch), in the order in which they were made."""
    table = schema.cycle_log.c
    query = select(schema.cycle_log).where(table.at >= since).order_by(table.order)
    with store.database.read() as connection:
        return [
            CycleEntry(
                at=row["at"],
                by=row["by"],
                action=CycleAction(row["action"]),
                cycle=row["cycle"],
                detail=row["detail"],
            )
            for row in connection.execute(query).mappings()
        ]


def said_now(by: str, action: CycleAction, cycle: str = "", detail: str = "") -> CycleEntry:
    """Return an entry of this moment."""
    return CycleEntry(at=time.time(), by=by, action=action, cycle=cycle, detail=detail)
