"""The turns and prompts that nothing continues: after a restart of a run, and when training is over."""

from collections import defaultdict
from typing import Any

from sqlalchemy import Connection, and_, or_, select

from ostinato.store.ledger import group_queries
from ostinato.store.ledger.phases import Phase, Stage, move
from ostinato.store.ledger.turn_states import turns_of_groups
from ostinato.store.sql import schema
from ostinato.types import Ending, Source, State

WAITING = (Phase.OFFERED, Phase.CLAIMED)


def interrupted_turns(connection: Connection) -> list[str]:
    """Return the turns without a state that nothing continues after a restart of a run."""
    turn, session = schema.turns.c, schema.sessions.c
    ended = and_(session.source == Source.LIVE.value, session.ending.is_not(None))
    joined = schema.turns.join(schema.sessions).outerjoin(schema.states)
    orphans = select(turn.id, turn.session_id).select_from(joined).where(schema.states.c.state.is_(None))
    orphans = orphans.where(~or_(session.source == Source.TEACHER.value, ended))
    slot, prompt = schema.slots.c, schema.prompts.c
    held = select(slot.session_id).select_from(schema.slots.join(schema.prompts))
    kept = set(connection.scalars(held.where(prompt.phase == Phase.RESERVED.value)))
    waiting = _waiting(connection)
    return [
        id
        for id, session_id in connection.execute(orphans)
        if id not in waiting and session_id.partition("-")[0] not in kept
    ]


def drop_reserved(connection: Connection, which: Any, reason: str) -> None:
    """End the reserved prompts that satisfy `which`."""
    query = select(schema.prompts.c.prompt).where(schema.prompts.c.phase == Phase.RESERVED.value, which)
    move(connection, list(connection.scalars(query)), Phase.DROPPED, reason)


def interrupted_prompts() -> Any:
    """Return the condition on prompts that are dropped after a restart of a run."""
    prompt, session = schema.prompts.c, schema.sessions.c
    shown = select(schema.shown.c.prompt).join(schema.sessions, session.id == schema.shown.c.session_id)
    left = and_(
        prompt.stage == Stage.LIVE.value, prompt.prompt.not_in(shown.where(session.ending.is_not(None)))
    )
    slotless = and_(prompt.stage == Stage.PRACTICE.value, prompt.prompt.not_in(select(schema.slots.c.prompt)))
    return and_(or_(slotless, left), prompt.reason.is_(None))


def ungrouped_turns(connection: Connection) -> dict[State, list[str]]:
    """Return the turns of practice sessions without a state and a group that waits: STALE where the session
    ended, VOID where it was cut off.
    """
    turn, session = schema.turns.c, schema.sessions.c
    joined = schema.turns.join(schema.sessions).outerjoin(schema.states)
    query = select(turn.id, session.ending).select_from(joined).where(schema.states.c.state.is_(None))
    waiting = _waiting(connection)
    found: dict[State, list[str]] = defaultdict(list)
    for id, ending in connection.execute(query.where(session.source == Source.PRACTICE.value)):
        if id not in waiting:
            cut_off = ending in {None, Ending.INFRASTRUCTURE.value}
            found[State.VOID if cut_off else State.STALE].append(id)
    return found


def _waiting(connection: Connection) -> set[str]:
    phases = (group_queries.in_phase(connection, each) for each in WAITING)
    return set(turns_of_groups(connection, [row.id for rows in phases for row in rows]))
