"""Turns without their tokens, which is all that a reward reads of them."""

from collections.abc import Iterable

from sqlalchemy import func, select

from ostinato.store.sql import schema
from ostinato.store.sql.chunks import rows_in
from ostinato.store.sql.increments import BYTES_OF_AN_ID
from ostinato.store.store import Store
from ostinato.types import FinishReason, TurnKind, TurnOutline


def outlines_of(store: Store, session_ids: Iterable[str]) -> dict[str, list[TurnOutline]]:
    """Return the outlines of each session's turns in order; a session without turns is not in the dict.

    No token is read, and no prompt is put together: a damaged turn is as any other here.
    """
    turn, found = schema.turns.c, dict[str, list[TurnOutline]]()
    query = select(
        turn.session_id,
        turn.number,
        turn.started_at,
        turn.latency_s,
        turn.broken,
        turn.kind,
        turn.finish,
        func.length(turn.ids),
    ).order_by(turn.session_id, turn.number)
    with store.database.read() as connection:
        for id_, number, started_at, latency_s, broken, kind, finish, size in rows_in(
            connection, query, turn.session_id, list(dict.fromkeys(session_ids))
        ):
            outline = TurnOutline(
                session_id=id_,
                index=number,
                started_at=started_at,
                latency_s=latency_s,
                broken=broken,
                kind=KINDS[kind],
                finish=FINISHES[finish],
                sampled=size // BYTES_OF_AN_ID,
            )
            found.setdefault(id_, []).append(outline)
    return found


KINDS = {kind.value: kind for kind in TurnKind}
FINISHES = {finish.value: finish for finish in FinishReason}
