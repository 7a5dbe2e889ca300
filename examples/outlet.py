"""An outlet: the figures of each training step as a line of JSON, for a team's own plots.

[refine]
figures_to = ["lines"]
"""

import json
from pathlib import Path

import ostinato as o


@o.outlet("lines")
class Lines:
    """Appends to figures.jsonl in the folder of the trainer, such as RUN/learner-practice."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / "figures.jsonl").open("a")

    def add(self, figures: o.StepFigures) -> None:
        print(json.dumps({"version": figures.version, **figures.flat()}), file=self._file, flush=True)

    def close(self) -> None:
        self._file.close()
