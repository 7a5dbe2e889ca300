"""Questions about prompts, and the counts that must be zero, read from what was written at the time."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, and_, func, or_, select

from ostinato.store.ledger.phases import Phase, Stage
from ostinato.store.sql.recording import chunks
from ostinato.store.sql.schema import groups, prompts, shown, trainings, versions


def phases(connection: Connection, names: Iterable[str]) -> dict[str, Phase]:
    """The phase of each of these prompts that is known."""
    found: dict[str, Phase] = {}
    for some in chunks(list(names)):
        query = select(prompts.c.prompt, prompts.c.phase).where(prompts.c.prompt.in_(some))
        found |= {name: Phase(phase) for name, phase in connection.execute(query)}
    return found


def in_phase(connection: Connection, phase: Phase, names: Iterable[str]) -> list[str]:
    """Those of these prompts that are in `phase`, sorted."""
    return sorted(name for name, found in phases(connection, names).items() if found is phase)


def shown_in(connection: Connection, session_ids: Sequence[str], stage: Stage) -> dict[str, str]:
    """The prompt that each of these sessions was shown in this stage, where one is known."""
    found: dict[str, str] = {}
    for some in chunks(session_ids):
        query = select(shown.c.session_id, shown.c.prompt).join(prompts)
        wanted = query.where(shown.c.session_id.in_(some), prompts.c.stage == stage.value)
        found |= {row[0]: row[1] for row in connection.execute(wanted)}
    return found


def trained_in(connection: Connection, version: int) -> set[str]:
    """Ids of the groups that are recorded as trained in `version`."""
    return set(connection.scalars(select(trainings.c.group_id).where(trainings.c.version == version)))


def unended(connection: Connection) -> int:
    """How many prompts have neither an end nor a word that they wait for."""
    reserved = and_(prompts.c.phase == Phase.RESERVED.value, prompts.c.reason.is_(None))
    under_way = prompts.c.phase.in_([Phase.OFFERED.value, Phase.CLAIMED.value])
    query = select(func.count()).select_from(prompts).where(or_(reserved, under_way))
    return connection.scalar(query) or 0


def trained_twice(connection: Connection) -> int:
    """How many prompts were trained more than once.

    Counted are the append-only trainings and, where a version's batch names a group that no training does,
    that too: the batch is written with the version and from the trainer's own note.
    """
    prompt_of: dict[str, str] = {
        row[0]: row[1] for row in connection.execute(select(groups.c.id, groups.c.prompt))
    }
    times: dict[str, int] = defaultdict(int)
    told: set[tuple[int, str]] = set()
    for version, group_id, prompt in connection.execute(
        select(trainings.c.version, trainings.c.group_id, trainings.c.prompt)
    ):
        prompt_of[group_id] = prompt
        told.add((version, group_id))
        times[prompt] += 1
    for version, batch in connection.execute(select(versions.c.version, versions.c.batch)):
        for group_id in json.loads(batch):
            if (version, group_id) not in told:
                times[prompt_of.get(group_id, group_id)] += 1
    return sum(count > 1 for count in times.values())
