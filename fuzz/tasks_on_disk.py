"""Tasks written to a directory in the Harbor layout, for whatever examines them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ostinato.types import Task


def write_files(directory: Path, files: Mapping[str, str]) -> None:
    """Write files by their path below `directory`, which is made."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


def write_task(
    directory: Path, repo: Mapping[str, str], tests: Mapping[str, str], ids: Sequence[str], **fields: Any
) -> Task:
    """Write a repository and its hidden tests, and return their task.

    `tests` are by their path below the task's tests; `fields` are further fields of the task.
    """
    write_files(directory / "environment/repo", repo)
    write_files(directory / "tests", tests)
    return Task(
        id="t",
        kind="fix",
        split="seeds",
        key="k",
        instruction="the code is off",
        directory=directory,
        test_ids=tuple(ids),
        **fields,
    )


def write_suite(
    directory: Path,
    repo: Mapping[str, str],
    suite: Mapping[str, str],
    ids: Sequence[str],
    runner: str = "pytest",
    **table: Any,
) -> Task:
    """Write a repository with its hidden suite, and return their task, which is examined under guard.

    `suite` are by their path in the repository; `table` are further settings of the suite.
    """
    hidden = {f"suite/{name}": text for name, text in suite.items()}
    return write_task(directory, repo, hidden, ids, metadata={"suite": {"runner": runner, **table}})
