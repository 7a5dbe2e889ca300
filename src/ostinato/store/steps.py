"""The figures of optimizer steps, one row for each version, and what the record says of their batches."""

import json
from collections.abc import Sequence

from sqlalchemy import func, select

from ostinato.store.ledger.phases import Phase
from ostinato.store.sql import schema
from ostinato.store.sql.chunks import rows_in
from ostinato.store.sql.row_conversion import reward_of
from ostinato.store.store import Store
from ostinato.types import Reward, State, StepFigures, from_json, to_json

UNTRAINED = [phase.value for phase in (Phase.DROPPED, Phase.STALE, Phase.WITHHELD, Phase.WITHDRAWN)]
"""The ends of a prompt that was not trained on."""


def add_step(store: Store, figures: StepFigures) -> None:
    """Keep the figures of the step that made a version; a version that has some keeps them.

    A learner that was killed after it published adds the line of that step once more.
    """
    row = {"version": figures.version, "figures": json.dumps(to_json(figures), allow_nan=False)}
    with store.database.write() as connection:
        connection.execute(store.database.insert_new(schema.steps), row)


def steps(store: Store, *, after: int = -1) -> list[StepFigures]:
    """Return the figures of all steps of versions above `after`, in the order of versions."""
    query = select(schema.steps.c.figures).where(schema.steps.c.version > after)
    with store.database.read() as connection:
        rows = list(connection.scalars(query.order_by(schema.steps.c.version)))
    return [from_json(StepFigures, json.loads(row)) for row in rows]


def newest_rewards(store: Store, session_ids: Sequence[str]) -> list[Reward]:
    """Return the last recorded reward of each of these sessions that has one."""
    table = schema.rewards.c
    query = select(schema.rewards).order_by(table.order)
    with store.database.read() as connection:
        rows = list(rows_in(connection, query, table.session_id, session_ids))
    newest = {row.session_id: row for row in rows}
    return [reward_of(row._mapping) for row in newest.values()]


def dropped_so_far(store: Store) -> dict[str, int]:
    """Return how many prompts ended untrained, and how many turns were left out as untrainable, by reason."""
    prompt, turn = schema.prompts.c, schema.states.c
    ended = select(prompt.phase, prompt.reason, func.count()).where(prompt.phase.in_(UNTRAINED))
    left_out = select(turn.reason, func.count()).where(turn.state == State.UNTRAINABLE.value)
    with store.database.read() as connection:
        of_prompts = connection.execute(ended.group_by(prompt.phase, prompt.reason)).all()
        of_turns = connection.execute(left_out.group_by(turn.reason)).all()
    prompts = {f"{phase}: {reason}" if reason else phase: count for phase, reason, count in of_prompts}
    return prompts | {f"turns: {reason or 'untrainable'}": count for reason, count in of_turns}
