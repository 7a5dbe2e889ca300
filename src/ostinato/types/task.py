"""The task: what an agent is asked to do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Grade(StrEnum):
    """The trust that a verdict of hidden tests deserves, lowest first.

    >>> Grade.JUDGED.at_least(Grade.GUARDED), Grade.FORGEABLE.at_least(Grade.GUARDED)
    (True, False)
    """

    FORGEABLE = "forgeable"
    """The tested code could have written the report itself, and nothing looked for signs of it."""
    GUARDED = "guarded"
    """Tests and tested code shared a process, with every guard that `docs/verdict.md` lists; or the tests let
    the tested code decide one of their assertions."""
    JUDGED = "judged"
    """The process that held the tests never imported the tested code, and decided every test itself."""

    def at_least(self, other: "Grade") -> bool:
        grades = list(Grade)
        return grades.index(self) >= grades.index(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A piece of work: what is to be done, where, and how it will be checked.

    >>> Task(id="pebble-k1-0f3a", kind="fix", split="seeds", key="9d1c", instruction="calc.py is off",
    ...      directory=Path("tasks/pebble-k1-0f3a"), test_ids=("test_hidden.py::test_alpha",)).kind
    'fix'
    """

    id: str
    kind: str
    split: str
    key: str
    """Hash of the semantic key: two tasks with the same key are the same problem."""
    instruction: str
    directory: Path
    """The Harbor task directory; `directory/environment/repo` is the git repository."""
    test_ids: tuple[str, ...]
    """The hidden tests: the task is solved when exactly these ran and all of them passed."""
    protected: tuple[str, ...] = ()
    """Paths in the repository that the agent must leave alone (visible tests, configuration)."""
    timeout_s: float = 60.0
    memory_mb: int = 0
    """The MiB of memory that the task asks for; 0 where it says nothing."""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cluster(self) -> str:
        """The name of the tasks of its split that are hard for the same reason; its own id by default."""
        return str(self.metadata.get("cluster", self.id))

    @property
    def grade(self) -> Grade:
        """The grade of verdicts on it, which the way of its exam decides, and who decides its assertions."""
        if "check" in self.metadata:
            return Grade.FORGEABLE
        return Grade.GUARDED if "suite" in self.metadata or self.undecided else Grade.JUDGED

    @property
    def undecided(self) -> tuple[str, ...]:
        """A sentence for each test, as it was loaded, about which the tested code could decide itself."""
        return tuple(self.metadata.get("undecided", ()))

    @property
    def repo(self) -> Path:
        return self.directory / "environment" / "repo"

    @property
    def tests(self) -> Path:
        return self.directory / "tests"
