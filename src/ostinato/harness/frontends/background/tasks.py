"""The record of tasks in the background: for each a file of what it is and what came of it, a lock that its
process holds for as long as it lives, the text that a terminal would have shown, and the copy it works in.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ostinato.harness.session_log import LogError, Sessions
from ostinato.types import Ending, IdError, completed, from_json, to_json

BOOT = Path("/proc/sys/kernel/random/boot_id")
RESERVE = 1 << 15
"""The bytes that a task keeps free on the disk, so that it can report that the disk is full."""


class TaskState(StrEnum):
    """The state of a task in the background."""

    WORKING = "working"
    ENDED = "ended"
    TAKEN = "taken"
    DROPPED = "dropped"
    DEAD = "dead"
    """Its process is gone and left no report. Nobody knows how it would have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCommand:
    """A command by which the agent tested its work, as it ended the last time.

    >>> TestCommand(command="pytest -q", passed=True).passed
    True
    """

    command: str
    passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """The report of a task at its end.

    >>> TaskReport(ending=Ending.FINISHED, message="done").turns
    0
    """

    ending: Ending
    message: str = ""
    """The last words of the agent."""
    reason: str = ""
    """The reason of an ending that the agent did not choose."""
    files: tuple[str, ...] = ()
    checks: tuple[TestCommand, ...] = ()
    turns: int = 0
    summaries: int = 0
    ended_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundTask:
    """One task; its id is that of its session.

    >>> BackgroundTask(id="3f", prompt="mend it", root="/r", place="/r", url="http://h", started_at=0.0,
    ...                first="", pid=1, boot="").is_copy
    False
    """

    id: str
    prompt: str
    root: str
    """The person's working tree."""
    place: str
    """The folder that it works in: a copy, or `root` itself."""
    url: str
    started_at: float
    first: str
    """The checkpoint of the files as it found them."""
    pid: int
    boot: str
    """The id of the machine's start, as the kernel names it."""
    report: TaskReport | None = None
    settled: TaskState | None = None
    """Taken or dropped, once the person said so."""

    @property
    def is_copy(self) -> bool:
        return self.place != self.root


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundTasks:
    """A folder of tasks, beside that of the sessions."""

    directory: Path

    @classmethod
    def of(cls, sessions: Sessions) -> "BackgroundTasks":
        return cls(directory=sessions.directory.parent / "background")

    def copy(self, task_id: str) -> Path:
        """Return the folder of a task's copy; the copy itself has the name of what it is of."""
        return self.directory / task_id

    def text(self, task_id: str) -> Path:
        """Return the file of what a terminal would have shown."""
        return self.directory / f"{task_id}.txt"

    def write(self, task: BackgroundTask) -> None:
        """Write a task, whole or not at all."""
        made = self.directory / f".{task.id}"
        with made.open("w") as file:
            json.dump(to_json(task), file)
            file.flush()
            os.fsync(file.fileno())
        made.replace(self.directory / f"{task.id}.json")

    def forget(self, task_id: str) -> None:
        """Remove all that there is of a task."""
        shutil.rmtree(self.copy(task_id), ignore_errors=True)
        for suffix in ("json", "lock", "stop", "txt"):
            (self.directory / f"{task_id}.{suffix}").unlink(missing_ok=True)

    def all(self) -> list[BackgroundTask]:
        """Return the tasks, the newest first; raises LogError for one that is damaged."""
        tasks = [_read(path) for path in self.directory.glob("*.json")]
        return sorted(tasks, key=lambda task: task.started_at, reverse=True)

    def meant(self, given: str) -> BackgroundTask:
        """Return the task of an id or its beginning, the newest for none; raises LogError."""
        tasks = {task.id: task for task in self.all()}
        if not tasks:
            raise LogError(f"no background task in {self.directory}: `ostinato code --background` begins one")
        if not given:
            return next(iter(tasks.values()))
        try:
            return tasks[completed(given, tasks, noun="background task", where=str(self.directory))]
        except IdError as error:
            raise LogError(f"{error}: `ostinato background list` shows them") from None

    def state(self, task: BackgroundTask) -> TaskState:
        if self._is_held(f"{task.id}.lock"):
            return TaskState.WORKING
        return task.settled or (TaskState.DEAD if task.report is None else TaskState.ENDED)

    def lives_in(self, place: str) -> BackgroundTask | None:
        """Return the task that works in a folder now."""
        here = (task for task in self.all() if task.place == place)
        return next((task for task in here if self.state(task) is TaskState.WORKING), None)

    def ask_to_stop(self, task_id: str) -> None:
        """Note that a person wants it to stop, by which it knows this from the end of the machine."""
        (self.directory / f"{task_id}.stop").touch()

    def was_asked_to_stop(self, task_id: str) -> bool:
        return (self.directory / f"{task_id}.stop").exists()

    @contextmanager
    def begun(self, task: BackgroundTask) -> Iterator[int]:
        """Record a task that this process carries out, and hold its lock until it is over.

        Yield what `make_room` takes. Raises LogError where another one works in the same folder, and OSError
        on a full disk.
        """
        with self._locked("starts.lock"):
            if (other := self.lives_in(task.place)) is not None:
                raise LogError(
                    f"background task {other.id} works in {task.place}: wait for it, or "
                    f"`ostinato background stop {other.id}`, or leave --here out"
                )
            lock = os.open(self.directory / f"{task.id}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.posix_fallocate(lock, 0, RESERVE)
            self.write(task)
        try:
            yield lock
        finally:
            os.close(lock)

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.directory / name).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _is_held(self, name: str) -> bool:
        """Return whether a process holds a lock; the kernel lets it go when that process ends, however."""
        try:
            with (self.directory / name).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False


def make_room(lock: int) -> None:
    """Give back what a task kept free on the disk."""
    os.ftruncate(lock, 0)


def boot_id() -> str:
    """Return the id of the machine's start; empty where the kernel has none."""
    return BOOT.read_text().strip() if BOOT.exists() else ""


def cause_of_death(task: BackgroundTask) -> str:
    """Return why a task that left no report is gone, from the evidence that there is."""
    if task.boot != boot_id():
        return "its machine went down or was started anew"
    return f"its process {task.pid} ended without a word: killed, or out of memory"


def _read(path: Path) -> BackgroundTask:
    try:
        return from_json(BackgroundTask, json.loads(path.read_bytes()))
    except ValueError as error:
        raise LogError(f"{path}: not a background task ({error}): restore the file or remove it") from error
