"""What simulated developers truly thought, beside the reward: the report of a simulated week knows it."""

import json
from typing import Any

from ostinato.dashboard.reading.base import Answer, RecordSource

REPORT = "week.json"
"""The report in the run folder, as `ostinato cycle --simulate=week` leaves it."""
GAIN = ("estimate", "low", "high")


def true_satisfaction(reading: RecordSource) -> Answer | None:
    """Return reward and hidden satisfaction by cycle and what a week gained; None where nobody simulated one.

    A report that cannot be read is an answer with its `fault`.
    """
    if reading.directory is None or not (path := reading.directory / REPORT).exists():
        return None
    try:
        report: dict[str, Any] = json.loads(path.read_text())
        cycles = [
            {
                "hours": float(row["hours"]),
                "reward": float(row["reward"]),
                "satisfaction": None if row["satisfaction"] is None else float(row["satisfaction"]),
                "promoted": str(row["decision"]).startswith("promote"),
            }
            for row in report["cycles"]
        ]
        gained = {name: float(report["hidden_satisfaction_gained"][name]) for name in GAIN}
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {"fault": f"{REPORT} in the run folder cannot be read: {error!r}"}
    return {"fault": "", "cycles": cycles, "gained": gained}
