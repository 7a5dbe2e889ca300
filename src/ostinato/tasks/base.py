"""The form of a task on disk: a directory in the Harbor layout, read into a `Task`.

A task with the suite of a real repository has the table `[metadata.ostinato.suite]` with its `runner`; the
hidden files lie in `tests/suite/` by their paths in the repository, and `test_ids` name tests by these paths.

A directory holds `instruction.md`, `task.toml`, `environment/repo` (a git repository), `tests/test_*.py`,
`tests/test.sh` and `solution/solve.sh`. The table `[metadata.ostinato]` holds what Harbor has no field for; a
task without that table is read as one of kind `imported`.
"""

import ast
import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ostinato.assertions import undecided_on_disk
from ostinato.types import Task

PLAIN_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
IMPORTED = "imported"
"""Kind and split of a foreign Harbor task."""
HARBOR = (
    'case "$TESTS" in /mnt/*) mkdir -p /logs/verifier && ln -sfn "$TESTS" /tests;; esac 2>/dev/null; '
    'shell=$(command -v bash || command -v sh); "$shell" "$TESTS/test.sh"; status=$?; '
    'test -f "$LOGS/reward.txt" || cp /logs/verifier/reward.txt "$LOGS/" 2>/dev/null; exit $status'
)
"""The command that runs Harbor's script, which writes to LOGS, or to /logs/verifier if it ignores LOGS.

In a sandbox with a root of its own, where TESTS is a mount, the tests lie at /tests too, as Harbor has them.
"""


class TaskError(Exception):
    """A task directory that cannot be used; the message names the directory, the fault and the remedy."""

    def __init__(self, directory: Path, problem: str, remedy: str) -> None:
        super().__init__(f"task {directory}: {problem}; {remedy}")
        self.directory = directory


def load_task(directory: Path) -> Task:
    """Read a Harbor task directory; raises `TaskError` when a part of it is missing or cannot be read."""
    if not directory.is_dir():
        raise TaskError(directory, "no such directory", "give the directory that holds task.toml")
    settings = _settings(directory)
    ours = _table(directory, _table(directory, settings, "metadata"), "ostinato")
    check = _suite(directory, ours) or _check(directory, ours)
    instruction = _instruction(directory)
    _check_repository(directory)
    test_ids = _test_ids(directory, _names(directory, ours, "test_ids"), check)
    name = str(ours.get("id", directory.resolve().name))
    if not PLAIN_NAME.fullmatch(name):
        raise TaskError(directory, f"the id {name!r} is no plain name", "use letters, digits, `.`, `_`, `-`")
    return Task(
        id=name,
        kind=str(ours.get("kind", IMPORTED)),
        split=str(ours.get("split", IMPORTED)),
        key=str(ours.get("key", hashlib.sha256(instruction.encode()).hexdigest()[:16])),
        instruction=instruction,
        directory=directory,
        test_ids=test_ids,
        protected=_names(directory, ours, "protected"),
        timeout_s=_timeout(directory, settings),
        memory_mb=_memory(directory, settings),
        metadata={name: ours[name] for name in ("answer", "intent", "cluster", "needs") if name in ours}
        | (check or _undecided(directory, test_ids))
        | _image(directory),
    )


def _undecided(directory: Path, test_ids: tuple[str, ...]) -> dict[str, Any]:
    """Return what the judge would not decide, as metadata; empty where it decides all."""
    found = undecided_on_disk(directory / "tests", directory / "environment" / "repo", test_ids)
    return {"undecided": found} if found else {}


def _image(directory: Path) -> dict[str, Any]:
    """Return what `ostinato tasks build` noted of the task's image, as metadata; empty without one."""
    path = directory / "environment" / "image.json"
    if not path.is_file():
        return {}
    try:
        image = json.loads(path.read_text(encoding="utf-8"))
        table = {name: image[name] for name in ("root", "workdir", "environment")}
    except (ValueError, KeyError, TypeError) as error:
        raise TaskError(
            directory, f"environment/image.json cannot be read ({error})", "build it again"
        ) from error
    return {"image": table}


def _settings(directory: Path) -> dict[str, Any]:
    path = directory / "task.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TaskError(directory, "task.toml is missing", "write one (Harbor schema_version 1.1)") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TaskError(directory, f"task.toml is not TOML ({error})", "correct that line") from error


def _table(directory: Path, settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = settings.get(name, {})
    if not isinstance(table, dict):
        raise TaskError(directory, f"`{name}` in task.toml is not a table", f"write it as [{name}]")
    return table


def _names(directory: Path, table: Mapping[str, Any], name: str) -> tuple[str, ...]:
    names = table.get(name, [])
    if not isinstance(names, list) or not all(isinstance(item, str) for item in names):
        raise TaskError(directory, f"`{name}` in task.toml is not a list of strings", 'write ["a", "b"]')
    return tuple(names)


def _timeout(directory: Path, settings: Mapping[str, Any]) -> float:
    value = _table(directory, settings, "verifier").get("timeout_sec", 60.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise TaskError(directory, f"verifier.timeout_sec is {value!r}", "give seconds above zero")
    return float(value)


def _memory(directory: Path, settings: Mapping[str, Any]) -> int:
    value = _table(directory, settings, "environment").get("memory_mb", 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TaskError(directory, f"environment.memory_mb is {value!r}", "give a whole number of MiB")
    return value


def _instruction(directory: Path) -> str:
    path = directory / "instruction.md"
    try:
        text = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
    except UnicodeDecodeError as error:
        raise TaskError(directory, f"instruction.md is not UTF-8 ({error})", "write it as UTF-8") from error
    if not text:
        raise TaskError(directory, "instruction.md is missing or empty", "write what is to be done there")
    return text


def _check_repository(directory: Path) -> None:
    repo = directory / "environment" / "repo"
    if not repo.is_dir():
        remedy = "put the repository to work on there, or make it of an image with `ostinato tasks build`"
        raise TaskError(directory, "environment/repo is missing", remedy)
    if not (repo / ".git" / "HEAD").is_file():
        raise TaskError(directory, "environment/repo has no .git", "commit it: git init, git add, git commit")


def _check(directory: Path, ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return the command that runs the hidden tests, as metadata; empty when pytest runs them.

    It is the declared command or, in a foreign task with an image or without `tests/test_*.py`,
    `tests/test.sh`: tests that come with an image look at files there. The sandbox reads it as a `Check`.
    """
    if "check" in ours:
        return {"check": _table(directory, ours, "check")}
    looks = bool(_image(directory)) or not any((directory / "tests").glob("test_*.py"))
    if ours or not looks or not (directory / "tests" / "test.sh").is_file():
        return {}
    return {"check": {"command": HARBOR, "report": "reward"}}


def _suite(directory: Path, ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of the repository's own suite, as metadata; empty when there is none.

    The sandbox reads it as a `Suite`.
    """
    if "suite" not in ours:
        return {}
    if "check" in ours:
        raise TaskError(
            directory, "both `suite` and `check` in task.toml", "keep the one that runs the tests"
        )
    return {"suite": _table(directory, ours, "suite")}


def _test_ids(directory: Path, declared: tuple[str, ...], check: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the hidden tests that must pass: the declared ones, else all in `tests/test_*.py`."""
    if "suite" in check:
        return _of_suite(directory, declared)
    if check:
        return _reported(directory, declared, check["check"])
    sources = {path.name: path for path in sorted((directory / "tests").glob("test_*.py"))}
    if not sources:
        raise TaskError(directory, "no hidden tests in tests/test_*.py", "write at least one test function")
    missing = [name for name in declared if name.split("::")[0] not in sources]
    if missing:
        raise TaskError(directory, f"test_ids name missing files: {missing}", "list tests that exist")
    test_ids = declared or tuple(
        f"{name}::{test}" for name, path in sources.items() for test in _test_functions(directory, path)
    )
    if not test_ids:
        raise TaskError(directory, "tests/ holds no test function", "write at least one `def test_…`")
    return test_ids


def _of_suite(directory: Path, declared: tuple[str, ...]) -> tuple[str, ...]:
    """Return the declared ids of a suite, whose files must be in the hidden suite or in the repository."""
    if not declared:
        raise TaskError(directory, "a suite without test_ids", "list the tests that must pass")
    folders = directory / "tests" / "suite", directory / "environment" / "repo"
    files = dict.fromkeys(name.partition("::")[0] for name in declared)
    missing = [name for name in files if not any((folder / name).is_file() for folder in folders)]
    if missing:
        raise TaskError(directory, f"test_ids name missing files: {missing}", "list tests that exist")
    return declared


def _reported(directory: Path, declared: tuple[str, ...], check: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the ids that a command reports: `reward`, or the declared ones."""
    if check.get("report") == "reward":
        return ("reward",)
    if not declared:
        raise TaskError(directory, "a check without test_ids", "list the tests that its report must name")
    return declared


def _test_functions(directory: Path, path: Path) -> list[str]:
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except (SyntaxError, ValueError) as error:  # ValueError: other bytes than UTF-8, or NUL
        raise TaskError(directory, f"tests/{path.name} is not Python ({error})", "correct it") from error
    return [node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
