"""A dataset in one text file: each line is the JSON of one task's files, written out when it is shown.

A git repository cannot hold another one, so tasks that are shipped or committed travel in this form. The
repository of a task must be as `write_repository` makes it: one commit of all its files.
"""

import base64
import binascii
import json
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from ostinato.assertions import undecided
from ostinato.tasks.base import load_task
from ostinato.tasks.repository import is_inside, write_repository
from ostinato.tasks.source import TRAIN, Problem, SourceError, ordered
from ostinato.types import Grade, Task

SUFFIX = ".jsonl"
REPO = "environment/repo/"


def pack(task: Task) -> str:
    """Return the line of a task."""
    files = {
        path.relative_to(task.directory).as_posix(): path.read_bytes()
        for path in sorted(task.directory.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(task.directory).parts
    }
    about = {"id": task.id, "key": task.key, "kind": task.kind, "split": task.split}
    return json.dumps({**about, "files": {path: _text(data) for path, data in files.items()}})


def _text(data: bytes) -> str | list[str]:
    """Return the text of a file; a list of one string in base64 where it is none."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return [base64.b64encode(data).decode()]


class PackedSource:
    """The tasks of a packed dataset."""

    def __init__(self, path: Path) -> None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            self._rows = [_row(path, number, line) for number, line in enumerate(lines, 1)]
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"{path} cannot be read: {error}") from error
        if not self._rows:
            raise SourceError(f"{path} holds no task: pack some with `ostinato tasks pack`")

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(sorted({row["split"] for row in self._rows}))

    def problems(self, split: str, seed: int) -> Iterator[Problem]:
        return ordered((_problem(row) for row in self._rows if row["split"] == split), split, seed)

    def stored(self, split: str) -> tuple[Problem, ...]:
        return tuple(self.problems(split, 0))

    def text(self, tasks: int, seed: int, rng: Random) -> Iterator[str]:
        rows = {row["key"]: row for row in self._rows}
        for problem in islice(self.problems(TRAIN, seed), tasks):
            files = rows[problem.key]["files"]
            yield from (
                text for path, text in sorted(files.items()) if isinstance(text, str) and _is_read(path)
            )


def _problem(row: dict[str, Any]) -> Problem:
    grade, undecided = _grade(row["files"])
    return Problem(
        id=row["id"],
        key=row["key"],
        kind=row["kind"],
        split=row["split"],
        grade=grade,
        undecided=undecided,
        provide=partial(unpack, row),
    )


def _grade(files: Mapping[str, Any]) -> tuple[Grade, tuple[str, ...]]:
    """Return the grade that `load_task` gives a task with these files, and what the judge does not decide."""
    try:
        ours = tomllib.loads(files["task.toml"]).get("metadata", {}).get("ostinato", {})
    except (KeyError, TypeError, AttributeError, ValueError):
        return Grade.FORGEABLE, ()  # it cannot be loaded, and says so when it is shown
    if "suite" in ours:
        return Grade.GUARDED, ()
    tests = any(re.fullmatch(r"tests/test_[^/]*\.py", path) for path in files)
    script = "tests/test.sh" in files and ("environment/image.json" in files or not tests)
    if "check" in ours or (script and not ours):
        return Grade.FORGEABLE, ()
    texts = {path.removeprefix("tests/"): str(text) for path, text in files.items() if _is_test(path)}
    paths = [path.removeprefix(REPO) for path in files if path.startswith(REPO)]
    found = undecided(texts, paths, ours.get("test_ids", ()))
    return (Grade.GUARDED if found else Grade.JUDGED), found


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and path.endswith(".py")


def _is_read(path: str) -> bool:
    return path == "instruction.md" or (path.startswith(REPO) and path.endswith(".py"))


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row: dict[str, Any] = json.loads(line)
        files = row["files"]
        good = {str(row[name]) for name in ("id", "key", "kind", "split")} and all(
            is_inside(name) and isinstance(text, str | list) for name, text in files.items()
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{path}, line {number}: not a packed task ({error!r})") from error
    if not good or not is_inside(str(row["id"])) or "/" in str(row["id"]):
        raise SourceError(f"{path}, line {number}: a path leads out of the task")
    return row


def unpack(row: dict[str, Any], folder: Path) -> Task:
    """Return the task in `folder` under its id: as it is there, else written whole or not at all."""
    directory, part = folder / row["id"], folder / f".{row['id']}.part"
    if not directory.exists():
        shutil.rmtree(part, ignore_errors=True)
        files = {path: _bytes(row["id"], text) for path, text in row["files"].items()}
        repo = {path.removeprefix(REPO): data for path, data in files.items() if path.startswith(REPO)}
        write_repository(part / REPO, repo)
        for path, data in files.items():
            target = part / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        part.rename(directory)
    return load_task(directory)


def _bytes(name: str, text: str | list[str]) -> bytes:
    if isinstance(text, str):
        return text.encode()
    try:
        return base64.b64decode(text[0], validate=True)
    except (binascii.Error, IndexError) as error:
        raise SourceError(f"packed task {name}: a file is no base64 ({error})") from error
