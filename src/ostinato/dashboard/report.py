"""A run as one file of HTML: its verdicts, its measurements, its training and its account, for a chat or a
paper.

The file holds its own style and pictures, no script, and no link to a server. It shows numbers and no text of
any session.
"""

from pathlib import Path

from ostinato.dashboard.access import OPERATOR
from ostinato.dashboard.html import STATIC, environment
from ostinato.dashboard.reading import experiment, now, rewards, training, versions
from ostinato.dashboard.reading.base import Answer, RecordSource

TEMPLATE = "report.html"
MOST_MEASURED = 12
"""The newest measured versions of the report, beside the first."""


def report(reading: RecordSource, *, caveat: str = "") -> str:
    """Return the report of a run as HTML; `caveat` is what a reader must know first."""
    style = (STATIC / "dashboard.css").read_text()
    return (
        environment()
        .get_template(TEMPLATE)
        .render(
            title=f"Run {reading.name}",
            caveat=caveat,
            style=style,
            now=reading.clock(),
            headline=now.headline(reading.store.arms()),
            trials=_trials(reading),
            measured=_measured(reading),
            training=training.seen(reading, OPERATOR, {}),
            rewards=rewards.seen(reading, OPERATOR, {}),
        )
    )


def write_report(reading: RecordSource, path: Path, *, caveat: str = "") -> None:
    """Write the report of a run, whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(report(reading, caveat=caveat))
    part.replace(path)


def _trials(reading: RecordSource) -> list[Answer]:
    rows = experiment.listed(reading, OPERATOR, {})["experiments"]
    return [experiment.one(reading, OPERATOR, {"id": row["id"]}) for row in reversed(rows)]


def _measured(reading: RecordSource) -> list[Answer]:
    """Return the measured versions, each beside the first that was measured."""
    numbers = sorted({each.version for each in reading.store.reports()})
    chosen = numbers[-MOST_MEASURED:]
    if numbers and numbers[0] not in chosen:
        chosen = [numbers[0], *chosen]
    known = {row.version for row in reading.store.versions()}
    return [versions.one(reading, OPERATOR, {"version": str(each)}) for each in chosen if each in known]
