"""The runs of a laptop that the planner predicts: what is done, in numbers, and never how long it takes."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ostinato_lab.planner.costs import PlanError

TABLE = Path(__file__).with_name("runs.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSize:
    """An average session of a policy: the tokens that an engine reads and samples and a trainer learns."""

    turns: float
    sampled: float
    read: float
    """Tokens of its own prompts that nobody computed before."""
    shared: float
    """Tokens before the task, which an engine computes once for each version, and a trainer once a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaptopRun:
    """The stages of one run, as its file has them.

    A count of 0 leaves a stage out. Tests hold the counts to the files that ship.
    """

    name: str
    shape: str
    """The model, as the costs name it."""
    cores: float
    lesson: SessionSize
    """A session of the teacher."""
    sessions: SessionSize
    lessons: int
    lessons_at_once: int
    sft_steps: int
    sft_rows: int
    """Rows of a supervised step; each is a session."""
    held_out: int
    bench_at_once: int
    passes: int
    versions: int
    groups: int
    group_size: int
    groups_at_once: int
    ready_ahead: int
    staleness: int
    live_sessions: int = 0
    developers: int = 0
    live_versions: int = 0
    shadow_requests: int = 0
    released_sessions: int = 0
    """Sessions of both arms in canary and split."""
    nodes: int = 0
    """Ray nodes whose actors keep the services; 0 for a run whose services are its children."""

    @property
    def cost_groups(self) -> tuple[str, ...]:
        """The groups of unit costs that the run is predicted from."""
        return ("laptop.", f"{self.shape}.", *(("ray.",) if self.nodes else ()))


def read_runs(path: Path = TABLE) -> dict[str, LaptopRun]:
    """Return the known runs by name; one that is `like` another has its counts where it names none."""
    rows = tomllib.loads(path.read_text())
    return {name: _run(name, {**rows.get(row.pop("like", ""), {}), **row}) for name, row in rows.items()}


def _run(name: str, row: Mapping[str, Any]) -> LaptopRun:
    known = {field.name for field in fields(LaptopRun)}
    if unknown := set(row) - known:
        raise PlanError(
            f"run {name}: unknown {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}"
        )
    shapes = {key: SessionSize(**row[key]) for key in ("lesson", "sessions")}
    return LaptopRun(**{**row, **shapes, "name": name})
