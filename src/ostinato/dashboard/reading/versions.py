"""The versions as a lineage, and one version with its report beside its parent's and its verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from sqlalchemy import func, select

from ostinato.dashboard.access import Viewer
from ostinato.dashboard.reading.base import Answer, Asked, NotThereError, RecordSource, whole
from ostinato.dashboard.reading.words import audit, steering
from ostinato.store import Store
from ostinato.store.sql.schema import groups, trainings
from ostinato.store.sql.schema import versions as recorded
from ostinato.types import Arm, Checkpoint, Report, Verdict, by_weight
from ostinato.web.plain import clean, line_of

MOST = 200
"""The versions of one page, the newest."""


def listed(reading: RecordSource, _: Viewer, asked: Asked) -> Answer:
    """Return the newest versions with their latest report and verdict; `before` names the next older page."""
    store = reading.store
    rows = store.versions()
    before = whole(asked, "before", 2**31 - 1)
    older = [row for row in rows if row.version < before]
    page = older[-MOST:]
    reports = {report.version: report for report in store.reports()}
    verdicts = {verdict.version: verdict for verdict in store.verdicts()}
    arms = store.arms()
    return {
        "title": "Versions",
        "versions": [_line(row, reports, verdicts, arms) for row in page],
        "all": len(rows),
        "next": page[0].version if len(older) > MOST else None,
    }


def one(reading: RecordSource, _: Viewer, asked: Asked) -> Answer:
    """Return one version. Raises NotThereError, AskedError."""
    store, number = reading.store, whole(asked, "version", -1)
    rows = {row.version: row for row in store.versions()}
    row = rows.get(number)
    if row is None:
        raise NotThereError(f"version {number} is not in this store")
    own, parent = store.reports(number), _measured_before(reading, rows, row)
    columns = trainings.join(groups, groups.c.id == trainings.c.group_id)
    kinds = select(groups.c.kind, func.count()).select_from(columns)
    with store.database.read() as connection:
        taught = connection.execute(
            kinds.where(trainings.c.version == number).group_by(groups.c.kind).order_by(groups.c.kind)
        ).all()
    return {
        "title": f"Version {number}",
        "version": _facts(row),
        "children": [each.version for each in rows.values() if each.parent == number],
        "arms": [_arm(arm) for arm in store.arms() if arm.version == number],
        "beside": parent.version if parent else None,
        "compared": _compared(own[-1] if own else None, parent),
        "rates": _rates(own[-1] if own else None, parent),
        "harness": own[-1].harness if own else None,
        "other_harness": bool(own and parent and own[-1].harness != parent.harness),
        "verdicts": [verdict_of(each) for each in reversed(store.verdicts(number))],
        "steering": steering(reading) if _tried(store.arms(), number) else None,
        "audit": audit(store, most=12),
        "now": reading.clock(),
        "kinds": [{"kind": line_of(kind, 40) or "without a kind", "groups": count} for kind, count in taught],
    }


def _measured_before(reading: RecordSource, rows: Mapping[int, Checkpoint], row: Checkpoint) -> Report | None:
    """Return the newest report of the nearest ancestor that was measured: few versions of a chain are."""
    reports = {report.version: report for report in reading.store.reports()}
    at = row.parent
    while at is not None and at not in reports:
        at = rows[at].parent if at in rows else None
    return None if at is None else reports[at]


def recorded_versions(store: Store) -> set[int]:
    """Return the versions that have a page: a teacher, and what was served without a chain, have none."""
    with store.database.read() as connection:
        return set(connection.scalars(select(recorded.c.version)))


def _tried(arms: Sequence[Arm], version: int) -> bool:
    """Return whether a version is the challenger of a trial under way."""
    tried = [arm.version for arm in arms if arm.experiment and arm.share > 0]
    return len(tried) == 2 and tried[1] == version


def verdict_of(verdict: Verdict) -> Answer:
    """Return a verdict in JSON values, with the intervals of its evidence that a page draws."""
    reward = verdict.evidence.get("promoting")
    return {
        "version": verdict.version,
        "decision": verdict.decision.value,
        "reason": clean(verdict.reason[:2_000]),
        "experiment": verdict.evidence.get("experiment"),
        "reward": reward if isinstance(reward, dict) else None,
    }


def _line(
    row: Checkpoint, reports: Mapping[int, Report], verdicts: Mapping[int, Verdict], arms: Sequence[Arm]
) -> Answer:
    report, verdict = reports.get(row.version), verdicts.get(row.version)
    return {
        **_facts(row),
        "decision": verdict.decision.value if verdict else None,
        "arms": [_arm(arm) for arm in arms if arm.version == row.version],
        "scores": _scores(report) if report else [],
    }


def _facts(row: Checkpoint) -> Answer:
    return {
        "version": row.version,
        "parent": row.parent,
        "kind": row.kind,
        "bytes": row.bytes,
        "created_at": row.created_at,
        "groups": len(row.batch),
        "digest": line_of(row.digest, 16),
    }


def _arm(arm: Arm) -> Answer:
    return {"name": line_of(arm.name, 40), "share": arm.share}


def _scores(report: Report) -> list[Answer]:
    """Return the scores, that of the split by which the gate decides first."""
    return [
        {"split": line_of(split, 40), **asdict(report.scores[split])} for split in by_weight(report.scores)
    ]


def _compared(own: Report | None, parent: Report | None) -> list[Answer]:
    """Return the scores by split, each beside those of the nearest ancestor that was measured."""
    others = {score["split"]: score for score in (_scores(parent) if parent else [])}
    return [score | {"parent": others.get(score["split"])} for score in (_scores(own) if own else [])]


def _rates(own: Report | None, parent: Report | None) -> list[Answer]:
    before = parent.rates if parent else {}
    return [
        {"name": line_of(name, 40), "value": value, "parent": before.get(name)}
        for name, value in (own.rates if own else {}).items()
    ]
