"""Queries about prompts, and the counts that must be zero, which are read from records of the time."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection, and_, func, or_, select

from ostinato.store.ledger.phases import Phase, Stage
from ostinato.store.sql.chunks import rows_in
from ostinato.store.sql.schema import groups, prompts, shown, trainings, versions


def phases(connection: Connection, names: Iterable[str]) -> dict[str, Phase]:
    """Return the phase of each of these prompts that is known."""
    rows = rows_in(connection, select(prompts.c.prompt, prompts.c.phase), prompts.c.prompt, list(names))
    return {name: Phase(phase) for name, phase in rows}


def in_phase(connection: Connection, phase: Phase, names: Iterable[str]) -> list[str]:
    """Return the prompts that are in `phase`, of those given, sorted."""
    return sorted(name for name, its_phase in phases(connection, names).items() if its_phase is phase)


def shown_in(connection: Connection, session_ids: Sequence[str], stage: Stage) -> dict[str, str]:
    """Return the prompt that each of these sessions was shown in this stage, where one is known."""
    query = select(shown.c.session_id, shown.c.prompt).join(prompts).where(prompts.c.stage == stage.value)
    return {row[0]: row[1] for row in rows_in(connection, query, shown.c.session_id, session_ids)}


def trained_in(connection: Connection, version: int) -> set[str]:
    """Return the ids of the groups that are recorded as trained in `version`."""
    return set(connection.scalars(select(trainings.c.group_id).where(trainings.c.version == version)))


def unended(connection: Connection) -> int:
    """Return the number of prompts that have neither ended nor have a reason to wait."""
    reserved = and_(prompts.c.phase == Phase.RESERVED.value, prompts.c.reason.is_(None))
    under_way = prompts.c.phase.in_([Phase.OFFERED.value, Phase.CLAIMED.value])
    query = select(func.count()).select_from(prompts).where(or_(reserved, under_way))
    return connection.scalar(query) or 0


def trained_twice(connection: Connection) -> int:
    """Return the number of prompts that some weights contain more than once.

    The append-only trainings are counted, and the groups in a version's batch that no training names: the
    batch is written with the version, from the trainer's own state. Two versions of which neither was trained
    on top of the other share no weights, so a prompt in both is in neither twice.
    """
    prompt_of: dict[str, str] = {
        row[0]: row[1] for row in connection.execute(select(groups.c.id, groups.c.prompt))
    }
    versions_of: dict[str, list[int]] = defaultdict(list)
    parents: dict[int, int | None] = {}
    counted: set[tuple[int, str]] = set()
    for version, group_id, prompt in connection.execute(
        select(trainings.c.version, trainings.c.group_id, trainings.c.prompt)
    ):
        prompt_of[group_id] = prompt
        counted.add((version, group_id))
        versions_of[prompt].append(version)
    columns = versions.c.version, versions.c.parent, versions.c.batch
    for version, parent, batch in connection.execute(select(*columns)):
        parents[version] = parent
        for group_id in json.loads(batch):
            if (version, group_id) not in counted:
                versions_of[prompt_of.get(group_id, group_id)].append(version)
    return sum(_share_weights(trained, parents) for trained in versions_of.values())


def _share_weights(trained: list[int], parents: Mapping[int, int | None]) -> bool:
    """Return whether one of these versions is another one, or was trained on top of it."""
    for place, version in enumerate(trained):
        others = {*trained[:place], *trained[place + 1 :]}
        at: int | None = version
        while at is not None and others:
            if at in others:
                return True
            at = parents.get(at)
    return False


def shown_by(connection: Connection, names: Sequence[str]) -> dict[str, Stage]:
    """Return the stage that showed each of these prompts to a model that learns; others are left out."""
    query = select(prompts.c.prompt, prompts.c.stage).where(prompts.c.stage != Stage.BENCH.value)
    return {name: Stage(stage) for name, stage in rows_in(connection, query, prompts.c.prompt, names)}
