"""The nouns of mining: a repository that was read, what came of it, and why something was refused."""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from ostinato.mining.settings import TEST_FILE, files_of_tests

HELD_OUT = "mined"
"""The split of tasks that are kept for measuring; the others are of the split `train`."""
TRAIN = "train"
HELD_OUT_SHARE = 4
"""The number of repositories of which one is held out."""
LEVELS = ("symptom", "terse", "plain", "full")
"""The levels of detail of a request: what fails, the place as tersely as people name it, and more."""
TEST_FOLDERS = frozenset({"test", "tests", "testing"})
NO_SOURCES = frozenset({"doc", "docs", "example", "examples", "bench", "benchmarks", "benchmark", "tools"})
CONFIGURATION = frozenset(
    {"pyproject.toml", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "setup.cfg", "tox.ini"}
    | {"conftest.py"}
)


class MiningError(Exception):
    """A repository, commit or archive of which no task can be made; `kind` names the reason for counting."""

    def __init__(self, kind: str, where: str, what: str) -> None:
        super().__init__(f"{where}: {kind}: {what}")
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTree:
    """The files of a repository at one moment.

    >>> SourceTree(name="toolz", version="1.0", files={"toolz/a.py": b"x = 1"}, licence="MIT").sources
    ('toolz/a.py',)
    """

    name: str
    """The repository's name in lower case, which decides its split."""
    version: str
    files: Mapping[str, bytes]
    licence: str
    left_out: Mapping[str, int] = field(default_factory=dict)
    """The files that were left out, by the reason."""

    @property
    def tests(self) -> tuple[str, ...]:
        """The files that hold tests, as `testpaths` and `python_files` of the settings say where they do."""
        return files_of_tests(self.files)[0]

    @property
    def sources(self) -> tuple[str, ...]:
        """The Python files that a fault may be put into."""
        tests = set(self.tests)
        return tuple(
            path
            for path in sorted(self.files)
            if path.endswith(".py")
            and path not in tests
            and not is_test(path)
            and not NO_SOURCES.intersection(PurePosixPath(path).parts[:-1])
            and path not in {"setup.py", "conftest.py", "noxfile.py"}
        )

    @property
    def split(self) -> str:
        """The split of all tasks of this repository: a hash of its name decides."""
        digest = hashlib.sha256(self.name.encode()).hexdigest()
        return HELD_OUT if int(digest[:8], 16) % HELD_OUT_SHARE == 0 else TRAIN


def is_test(path: str) -> bool:
    """Return whether a file belongs to the tests: by its name, or by a folder above it."""
    parts = PurePosixPath(path).parts
    named = bool(TEST_FILE.search(path)) or parts[-1] == "conftest.py"
    return named or not TEST_FOLDERS.isdisjoint(parts[:-1])


def settings_of(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files with the settings of the tests, which nobody who solves a task may change."""
    return {path: files[path] for path in CONFIGURATION & files.keys() if not is_test(path)}


def repository_name(text: str) -> str:
    """Return the name that all spellings of a project have in common, without a version."""
    bare = re.sub(r"-\d[\w.+!]*$", "", text)
    return re.sub(r"[-_.]+", "-", bare).lower().strip("-") or "repository"


@dataclass(slots=True, kw_only=True)
class Tally:
    """The yield of mining by stage, and the reasons why something was left.

    >>> tally = Tally()
    >>> tally.count("repositories")
    >>> tally.stages["repositories"]
    1
    """

    stages: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)
    """One sentence for each repository, commit or archive that was refused as a whole."""

    def count(self, stage: str, number: int = 1) -> None:
        self.stages[stage] += number

    def note(self, stage: str, number: int) -> None:
        """Count what was left out, where anything was."""
        if number:
            self.count(stage, number)

    def refuse(self, error: MiningError) -> None:
        self.refused[error.kind] += 1
        self.reasons.append(str(error))
