"""The sessions that were trained on, beside those that came too late: what ends late is no fair sample."""

from collections import defaultdict

from sqlalchemy import Connection, func, select

from ostinato.dashboard.reading.base import Answer
from ostinato.dashboard.reading.intervals import quantiles
from ostinato.store import Phase
from ostinato.store.sql.row_conversion import pack_ints
from ostinato.store.sql.schema import groups, prompts, samples
from ostinato.web.plain import line_of

MOST_GROUPS = 2_000
"""The newest groups of each end that are compared."""
ALL = "all kinds"
INT_BYTES = len(pack_ints((0,)))
Sizes = list[tuple[int, int]]
"""The tokens and the turns of each session."""


def trained_beside_stale(connection: Connection) -> list[Answer]:
    """Return, for all kinds of tasks and for each kind, the sessions that were trained on beside the stale.

    A side has the number of its sessions, their share of its end, and the quartiles of their tokens and
    turns; it is None without a session. Empty when no group came too late.
    """
    trained, stale = (_sizes(connection, phase) for phase in (Phase.TRAINED, Phase.STALE))
    if not stale[ALL]:
        return []
    kinds = sorted(
        trained.keys() | stale.keys(), key=lambda kind: (-len(trained[kind]) - len(stale[kind]), kind)
    )
    return [
        {
            "kind": line_of(kind, 40),
            "trained": _side(trained[kind], len(trained[ALL])),
            "stale": _side(stale[kind], len(stale[ALL])),
        }
        for kind in [ALL, *(kind for kind in kinds if kind != ALL)]
    ]


def _sizes(connection: Connection, phase: Phase) -> dict[str, Sizes]:
    """Return the sizes of the sessions of the newest groups that ended so, by kind of task and of all."""
    newest = (
        select(groups.c.id, groups.c.kind)
        .join(prompts, prompts.c.prompt == groups.c.prompt)
        .where(prompts.c.phase == phase.value)
        .order_by(groups.c.order.desc())
        .limit(MOST_GROUPS)
        .subquery()
    )
    tokens, turns = func.sum(func.length(samples.c.mask)), func.sum(func.length(samples.c.turns))
    query = select(newest.c.kind, tokens, turns).join(samples, samples.c.group_id == newest.c.id)
    sessions = query.group_by(newest.c.id, newest.c.kind, samples.c.session_id)
    found: dict[str, Sizes] = defaultdict(list)
    for kind, length, width in connection.execute(sessions):
        size = (length, width // INT_BYTES)
        found[ALL].append(size)
        found[kind or "without a kind"].append(size)
    return found


def _side(sizes: Sizes, all_sessions: int) -> Answer | None:
    if not sizes:
        return None
    (tokens, turns) = (quantiles([float(size[i]) for size in sizes])[1:4] for i in (0, 1))
    return {
        "sessions": len(sizes),
        "share": len(sizes) / all_sessions,
        "tokens": list(tokens),
        "turns": list(turns),
    }
