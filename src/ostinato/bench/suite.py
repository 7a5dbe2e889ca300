"""The suite: a versioned folder of Harbor tasks with a manifest, and a hash over everything that decides.

The hash covers, of each task, the instruction, the settings, the repository and the hidden tests. Solutions
and evidence are not in it: no verdict reads them.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato.tasks.base import TaskError, load_task
from ostinato.tasks.source import task_folders
from ostinato.types import Task

MANIFEST = "suite.json"
DECIDES = ("instruction.md", "task.toml", "environment", "tests")
"""The parts of a task that decide whether it is solved."""


class SuiteError(ValueError):
    """A suite cannot be used as it lies there; the message names the suite, the fault and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSuite:
    """A benchmark as it lies on disk, whose manifest agrees with its tasks.

    >>> BenchSuite(name="mined", version=1, hash="9f", tasks=()).label
    'mined 1'
    """

    name: str
    version: int
    hash: str
    tasks: tuple[Task, ...]

    @property
    def label(self) -> str:
        return f"{self.name} {self.version}"


def seal(directory: Path, name: str = "") -> BenchSuite:
    """Write the manifest of the tasks below `directory`; a suite that changed gets the next version.

    Raises SuiteError when it holds no task or two of one id, TaskError for a task that cannot be read.
    """
    tasks, hashes = _read(directory)
    whole = _whole(hashes)
    old = _manifest(directory) if (directory / MANIFEST).exists() else None
    if old is not None and name in {"", old["name"]} and old["hash"] == whole:
        return BenchSuite(name=old["name"], version=old["version"], hash=whole, tasks=tasks)
    name = name or (old["name"] if old is not None else directory.resolve().name)
    version = old["version"] + 1 if old is not None and old["name"] == name else 1
    manifest = {"name": name, "version": version, "hash": whole, "tasks": hashes}
    temporary = directory / f".{MANIFEST}.{os.getpid()}"
    temporary.write_text(json.dumps(manifest, indent=1) + "\n")
    temporary.replace(directory / MANIFEST)
    return BenchSuite(name=name, version=version, hash=whole, tasks=tasks)


def open_suite(directory: Path) -> BenchSuite:
    """Read a sealed suite; raises SuiteError, which names both hashes, when it is not as it was sealed."""
    if not (directory / MANIFEST).is_file():
        raise SuiteError(f"{directory} has no {MANIFEST}: write one with `ostinato bench seal {directory}`")
    manifest = _manifest(directory)
    tasks, hashes = _read(directory)
    if (whole := _whole(hashes)) != manifest["hash"]:
        sealed = manifest["tasks"]
        differ = sorted(id for id in {*sealed, *hashes} if sealed.get(id) != hashes.get(id))
        raise SuiteError(
            f"{directory} was sealed as version {manifest['version']} with hash {manifest['hash']} and now "
            f"has {whole}: {len(differ)} tasks differ, first {differ[0]}. Put them back, or seal it again as "
            "another version"
        )
    return BenchSuite(name=manifest["name"], version=manifest["version"], hash=whole, tasks=tasks)


def task_hash(directory: Path) -> str:
    """Return the hash over everything in a task folder that decides, with names, links and file modes."""
    digest = hashlib.sha256()
    for part in DECIDES:
        for path in _files(directory / part):
            name = path.relative_to(directory).as_posix()
            if path.is_symlink():
                kind, content = "link", str(path.readlink()).encode()
            else:
                kind = "program" if path.stat().st_mode & 0o100 else "file"
                content = path.read_bytes()
            head = json.dumps([name, kind, len(content)])
            digest.update(head.encode() + b"\n" + content)
    return digest.hexdigest()[:32]


def _files(path: Path) -> Sequence[Path]:
    """Return every file and link at or below `path`, without those that git keeps for itself."""
    if path.is_symlink() or path.is_file():
        return [path]
    found: list[Path] = []
    for folder, folders, names in os.walk(path):
        here = Path(folder)
        if ".git" in folders:
            folders.remove(".git")
        links = [here / name for name in folders if (here / name).is_symlink()]
        found += [*links, *(here / name for name in names)]
    return sorted(each for each in found if not _is_cache(each))


def _is_cache(path: Path) -> bool:
    return "__pycache__" in path.parts or path.suffix == ".pyc"


def _read(directory: Path) -> tuple[tuple[Task, ...], dict[str, str]]:
    tasks = tuple(load_task(folder) for folder in task_folders(directory))
    if not tasks:
        raise SuiteError(f"{directory} holds no task: put folders in the Harbor layout there")
    hashes: dict[str, str] = {}
    for task in tasks:
        if task.id in hashes:
            raise TaskError(task.directory, f"the id {task.id!r} is taken by another one", "rename one")
        hashes[task.id] = task_hash(task.directory)
    return tasks, hashes


def _whole(hashes: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(sorted(hashes.items())).encode()).hexdigest()[:32]


def _manifest(directory: Path) -> dict[str, Any]:
    path = directory / MANIFEST
    try:
        manifest = json.loads(path.read_text())
        if (
            isinstance(manifest["name"], str)
            and isinstance(manifest["version"], int)
            and isinstance(manifest["hash"], str)
            and isinstance(manifest["tasks"], dict)
        ):
            return dict(manifest)
    except (ValueError, KeyError, TypeError) as error:
        raise SuiteError(f"{path} is no manifest of a suite ({error}): seal the suite again") from error
    raise SuiteError(f"{path} is no manifest of a suite: seal the suite again")
