"""Groups that the trainer claimed and could not train on, and those whose weights go nowhere."""

from collections import defaultdict
from collections.abc import Mapping

from sqlalchemy import Connection

from ostinato.store.ledger import group_queries
from ostinato.store.ledger.phases import Phase, Stage, move
from ostinato.store.ledger.turn_states import set_states, turns_of_groups
from ostinato.store.sql import schema
from ostinato.store.sql.database import Database
from ostinato.types import State


def drop_claimed(
    database: Database, connection: Connection, reason_of: Mapping[str, str], state: State = State.UNTRAINABLE
) -> int:
    """Drop these groups, by id, each for its reason; return the number of those that were claimed.

    Others are left alone: they were dropped before, or the record has them in an earlier phase, from which
    they are claimed once more. The turns get `state`.
    """
    by_reason: dict[str, list[str]] = defaultdict(list)
    for id, reason in reason_of.items():
        by_reason[reason].append(id)
    dropped = 0
    for reason, ids in by_reason.items():
        rows = group_queries.in_phase(connection, Phase.CLAIMED, schema.groups.c.id.in_(ids))
        claimed = [row.id for row in rows]
        move(connection, [row.prompt for row in rows], Phase.DROPPED, reason)
        group_queries.set_target(connection, claimed, None)
        set_states(database, connection, turns_of_groups(connection, claimed), state, reason)
        dropped += len(rows)
    return dropped


def give_back(connection: Connection, version: int, base: int) -> int:
    """Reserve live prompts again that were trained into the versions after `base` up to `version`; return
    their number. Those of which a session was purged meanwhile stay."""
    group, prompt = schema.groups.c, schema.prompts.c
    trained = group.target_version > base, group.target_version <= version
    live = prompt.stage == Stage.LIVE.value
    groups = group_queries.in_phase(connection, Phase.TRAINED, live, *trained, ~group.withdrawn)
    group_queries.delete_groups(connection, [row.id for row in groups])
    move(connection, [row.prompt for row in groups], Phase.RESERVED, "its candidate was superseded")
    return len(groups)
