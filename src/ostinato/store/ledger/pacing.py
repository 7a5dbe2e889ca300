"""The pace of training: a version waits for groups in flight that it would make too old.

A group may be trained on while the newest version is at most `staleness` ahead of its oldest token. Sessions
on hard tasks take longer, so if the trainer went on with whatever is whole, it would drop hard groups and
train on the easy ones. Instead it takes the oldest groups first, and waits where a batch without one in
flight would leave more groups than the later steps could still take in time.

Nothing is dropped then, however long sessions take. Let c(v) be the groups under way, claimed ones included,
whose oldest token is of version v or older, and n the newest version. Sampling starts a group while all under
way are fewer than (staleness + 1) · batch, so that c(v) <= (v + staleness - n + 1) · batch holds for v = n. A
step of `in_time` leaves at most (v + staleness - n) · batch of each v, which is the same bound for n + 1.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, case, func, select

from ostinato.store.ledger.phases import Phase, Stage
from ostinato.store.ledger.slot_rows import SlotState
from ostinato.store.sql.chunks import rows_in
from ostinato.store.sql.row_conversion import unpack_runs
from ostinato.store.sql.schema import groups, prompts, slots, turns, versions

LEFT = (SlotState.PLANNED, SlotState.DROPPED)
"""The states in which a place has no session that may still come into its group."""
OLDEST_FIRST = case((prompts.c.stage == Stage.PRACTICE.value, groups.c.oldest_version), else_=0)
"""The order of claims, before that of offers. Live sessions keep theirs, which nobody chose."""


def may_train(connection: Connection, newest: int, staleness: int, batch: int) -> bool:
    """Return whether the trainer may take `batch` of the offered groups for the version after `newest`."""
    group = groups.join(prompts)
    query = select(groups.c.oldest_version).select_from(group).where(prompts.c.phase == Phase.OFFERED.value)
    offered = list(connection.scalars(query))
    if sum(each >= newest - staleness for each in offered) < batch:
        return False
    return in_time(offered, versions_in_flight(connection), newest=newest, staleness=staleness, batch=batch)


def in_time(
    offered: Sequence[int], in_flight: Sequence[int], *, newest: int, staleness: int, batch: int
) -> bool:
    """Return whether the oldest `batch` of the offered groups may be trained on before those in flight end.

    `offered` and `in_flight` hold the version of each group's oldest token. Those that are too old already
    cannot be helped, and are left out.

    >>> in_time([3, 3], [2], newest=3, staleness=1, batch=2)
    False
    >>> in_time([3, 3], [3], newest=3, staleness=1, batch=2)
    True
    """
    oldest = newest - staleness
    for version in {each for each in (*offered, *in_flight) if each >= oldest}:
        whole = sum(oldest <= each <= version for each in offered)
        open = sum(oldest <= each <= version for each in in_flight)
        due = whole + open - (version - oldest) * batch
        if min(batch, whole) < min(batch, due):
            return False
    return True


def versions_in_flight(connection: Connection) -> list[int]:
    """Return, for each practice prompt with a session that began and without a group, the version of its
    oldest token.

    The first turn of a session says it. Before that is recorded, it is the newest version that was committed
    when the session began, by the clocks of the two hosts.
    """
    slot = slots.c
    began = select(func.max(versions.c.version)).where(versions.c.created_at <= slot.at).scalar_subquery()
    query = select(slot.prompt, slot.number, slot.state, slot.session_id, began).join(prompts)
    of_practice = prompts.c.stage == Stage.PRACTICE.value, prompts.c.phase == Phase.RESERVED.value
    moves = slot.state.in_([SlotState.RUNNING.value, *(state.value for state in LEFT)])
    began_at: dict[tuple[str, int], tuple[str, int]] = {}
    for prompt, number, state, id, version in connection.execute(
        query.where(*of_practice, moves).order_by(slot.order)
    ):
        began_at.pop((prompt, number), None)
        if state == SlotState.RUNNING.value:
            began_at[prompt, number] = id, max(0, version or 0)
    first_turns = select(turns.c.session_id, turns.c.versions).where(turns.c.number == 0)
    ids = [id for id, _ in began_at.values()]
    first = {
        id: min(unpack_runs(runs)) for id, runs in rows_in(connection, first_turns, turns.c.session_id, ids)
    }
    oldest: dict[str, int] = {}
    for (prompt, _), (id, version) in began_at.items():
        own = first.get(id, version)
        oldest[prompt] = min(oldest.get(prompt, own), own)
    return list(oldest.values())
