"""Old sessions whose life is over: nothing of the loop is going to read again what they consist of.

The others stay, each for a reason that is counted. Every rule is a query about at most a few hundred sessions
in the caller's transaction, so what held when a session was chosen holds when it is removed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, case, func, select

from ostinato.store.cycle_log import CycleAction
from ostinato.store.ledger.ledger import prompt_of_session
from ostinato.store.ledger.phases import ENDS, Phase
from ostinato.store.releases import ReleaseStage
from ostinato.store.sql.chunks import last_rows, rows_in, values_in
from ostinato.store.sql.row_conversion import reward_of
from ostinato.store.sql.schema import (
    cycle_log,
    events,
    groups,
    passes,
    prompts,
    releases,
    rewards,
    samples,
    sessions,
    shown,
    signals,
    slots,
    states,
    turns,
    verdicts,
)
from ostinato.types import Source, State

UNDER_WAY = [phase.value for phase in Phase if phase not in ENDS]
LEARNT = {Source.TEACHER.value, Source.PRACTICE.value, Source.IMPORTED.value}
"""The sources whose trained texts the benchmark is compared with (`bench/fence.py`)."""
NEVER = float("inf")


class Stays(StrEnum):
    """The reason why an old session stays; the first one that holds is given."""

    OPEN = "have not ended"
    HEARD_OF = "were heard of since"
    LEDGER = "are held by the ledger"
    RELEASE = "belong to a release or a cycle that is under way"
    BENCHMARK = "belong to a benchmark that is under way"
    IMMATURE = "have a reward that is not mature"
    UNCOLLECTED = "wait to be collected (--uncollected)"
    LEARNT = "were learnt from, and the benchmark is compared with them"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCounts:
    """The turns of one session: the end of the last one, and how many are in which state.

    >>> TurnCounts(until=0.0, without_state=0, censored=0, trained=1).trained
    1
    """

    until: float
    without_state: int
    censored: int
    trained: int


NO_TURNS = TurnCounts(until=0.0, without_state=0, censored=0, trained=0)


def staying(
    connection: Connection, ids: Sequence[str], before: float, *, uncollected: bool = False
) -> dict[str, Stays]:
    """Return which of these sessions stay, with the reason; the others are over and older than `before`.

    `before` is in seconds since the epoch. With `uncollected`, live sessions that no collection has looked at
    count as over too.
    """
    rows = list(rows_in(connection, select(sessions), sessions.c.id, ids))
    counted, heard = _turns(connection, ids), _heard(connection, ids)
    (held, ended), live_since = _prompts(connection, ids), live_sessions_stay(connection)
    measured = set(
        _with(connection, select(passes.c.session_id).where(passes.c.result.is_(None)), passes, ids)
    )
    immature = _immature(connection, ids)
    stay: dict[str, Stays] = {}
    for row in rows:
        of, live = counted.get(row.id, NO_TURNS), row.source == Source.LIVE.value
        waits = of.without_state > 0 and (row.consent or not live) and row.id not in ended
        rules: dict[Stays, bool] = {
            Stays.OPEN: (live and row.ending is None and row.id in counted) or (waits and not live),
            Stays.HEARD_OF: max(row.started_at, of.until, heard.get(row.id, 0.0)) >= before,
            Stays.LEDGER: row.id in held,
            Stays.RELEASE: live and row.started_at >= live_since,
            Stays.BENCHMARK: row.id in measured,
            Stays.IMMATURE: of.censored > 0 or (row.id in immature and waits),
            Stays.UNCOLLECTED: waits and not uncollected,
            Stays.LEARNT: row.source in LEARNT and of.trained > 0,
        }
        if reason := next((each for each, holds in rules.items() if holds), None):
            stay[row.id] = reason
    return stay


def live_sessions_stay(connection: Connection) -> float:
    """Return the moment since which live sessions stay, for a release or a cycle under way; NEVER for none.

    A release compares what people do with what the same people used to do, so while it is under way all live
    sessions stay. One that is over and has no verdict yet finds that verdict in its own sessions.
    """
    began: dict[str, float] = {}
    last: dict[str, str] = {}
    rows = select(releases.c.experiment, releases.c.at, releases.c.stage).order_by(releases.c.order)
    for experiment, at, stage in connection.execute(rows):
        began.setdefault(experiment, at)
        last[experiment] = stage
    if any(stage != ReleaseStage.OVER.value for stage in last.values()):
        return 0.0
    judged = set(values_in(connection, select(verdicts.c.id), verdicts.c.id, list(began)))
    since = [at for experiment, at in began.items() if experiment not in judged]
    ended_at, running, trials = 0.0, False, set[str]()
    entries = select(cycle_log.c.at, cycle_log.c.action, cycle_log.c.cycle).order_by(cycle_log.c.order)
    for at, action, about in connection.execute(entries):
        if action == CycleAction.CYCLE_DONE.value:
            ended_at, running = at, False
        elif action == CycleAction.TRIAL_OPENED.value:
            trials.add(about)
        elif action == CycleAction.STAGE_BEGAN.value and about not in trials:
            running = True
    return min([*since, ended_at if running else NEVER], default=NEVER)


def _turns(connection: Connection, ids: Sequence[str]) -> dict[str, TurnCounts]:
    counts = [
        func.sum(case((states.c.state == state.value, 1), else_=0))
        for state in (State.CENSORED, State.TRAINED)
    ]
    until = func.max(turns.c.started_at + turns.c.latency_s)
    query = select(turns.c.session_id, until, func.count() - func.count(states.c.turn_id), *counts)
    query = query.select_from(turns.outerjoin(states)).group_by(turns.c.session_id)
    return {
        id: TurnCounts(until=until, without_state=int(without), censored=int(censored), trained=int(trained))
        for id, until, without, censored, trained in rows_in(connection, query, turns.c.session_id, ids)
    }


def _heard(connection: Connection, ids: Sequence[str]) -> dict[str, float]:
    """Return the time of the last signal or event of each session that has any."""
    last: dict[str, float] = {}
    received = func.coalesce(signals.c.received_at, signals.c.observed_at)
    for table, at in ((signals, received), (events, events.c.observed_at)):
        query = select(table.c.session_id, func.max(at)).group_by(table.c.session_id)
        for id, moment in rows_in(connection, query, table.c.session_id, ids):
            last[id] = max(moment, last.get(id, 0.0))
    return last


def _prompts(connection: Connection, ids: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the sessions of prompts that have not ended (reserved, offered or claimed), and the live
    sessions whose prompt has: a turn of theirs without a state came too late for it."""
    waiting = prompts.c.phase.in_(UNDER_WAY)
    live = {prompt_of_session(id): id for id in ids}
    own = select(prompts.c.prompt, prompts.c.phase)
    phases = [(live[name], phase) for name, phase in rows_in(connection, own, prompts.c.prompt, list(live))]
    others = select(shown.c.session_id, prompts.c.phase).join(prompts)
    phases += [(id, phase) for id, phase in rows_in(connection, others, shown.c.session_id, ids)]
    held = {id for id, phase in phases if phase in UNDER_WAY}
    ended = {id for id, phase in phases} - held
    grouped = select(samples.c.session_id).select_from(samples.join(groups).join(prompts)).where(waiting)
    held |= set(_with(connection, grouped, samples, ids))
    of = branches(ids)
    planned = select(slots.c.session_id).join(prompts).where(waiting)
    return held.union(*(of[name] for name in _with(connection, planned, slots, list(of)))), ended


def branches(ids: Iterable[str]) -> dict[str, list[str]]:
    """Return these sessions by the name of the slot that each is of: its own, or that before a `-`."""
    of: dict[str, list[str]] = {}
    for id in ids:
        for name in {id, id.partition("-")[0]}:
            of.setdefault(name, []).append(id)
    return of


def _immature(connection: Connection, ids: Sequence[str]) -> set[str]:
    """Return the sessions of whose last reward a part is censored."""
    last = last_rows(connection, rewards, ids)
    return {id for id, row in last.items() if any(p.censored for p in reward_of(row._mapping).parts)}


def _with(connection: Connection, query: Any, table: Any, ids: Sequence[str]) -> Iterable[str]:
    return values_in(connection, query, table.c.session_id, ids)
