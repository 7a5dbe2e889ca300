"""Own a run folder and open a run in it.

`demo` and `serve` both write arms, start engines and hand out keys in the folder, so two of them would take
each other's users away. Therefore a folder has one owner at a time, by a lock of the kernel that ends with
the owner's process.

A folder goes on while something of its schedule is not done. Meanwhile the sandbox, the engines and the
schedule may change and the gateway may move, between two cycles the live traffic too; any other change is
refused. A finished folder, one with a report on the schedule that it holds, is moved aside and a run starts
afresh. Only `--fresh` deletes, and never what people left: keys, consents, live sessions. Databases and
buckets are neither moved nor emptied: a run that starts afresh gets empty ones.
"""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from ostinato.config import ConfigError, dump, load
from ostinato.loop.config import FIXED, RunConfig
from ostinato.loop.people import people
from ostinato.loop.run import Run, write_whole
from ostinato.store import Objects, Store
from ostinato.store.config import StoreConfig
from ostinato.store.sql.sqlite_file import is_open_elsewhere
from ostinato.types import Source

MADE_BY_RUNS = tuple(source for source in Source if source is not Source.LIVE)
"""The sessions that no record of `ostinato serve --engine` holds, from which a run may begin."""


class RunError(ValueError):
    """The folder is not one of our runs."""


class OwnedError(ValueError):
    """Another process owns the folder; the message names it."""


@contextmanager
def owned(directory: Path, purpose: str) -> Iterator[Run]:
    """Create `directory` if it is missing, and own it until the block ends.

    `purpose` names this process in the refusal that others get. Raises OwnedError when a process owns the
    folder already.
    """
    directory.mkdir(parents=True, exist_ok=True)
    run = Run(directory=directory)
    descriptor = os.open(run.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor, directory)
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"ostinato {purpose}, process {os.getpid()}".encode(), 0)
        yield run
    finally:
        os.close(descriptor)


def _lock(descriptor: int, directory: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(descriptor, 200, 0).decode(errors="replace") or "another process"
        raise OwnedError(
            f"{directory} is in use by {owner}: stop that first, or name another folder with --directory"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A run that is ready to go on, and the fate of what its folder held before.

    >>> Opened(run=Run(directory=Path("runs/demo")), notice="starts afresh").resumed
    False
    """

    run: Run
    notice: str
    """The notice for the person who started it: resumed, moved aside and where to, or deleted."""
    resumed: bool = False


def open_run(run: Run, config: RunConfig, *, fresh: bool = False, begins: bool = True) -> Opened:
    """Open an owned folder for a run with the settings `config`; without `begins` only to go on with it.

    Raises RunError when there is nothing to go on with and it may not begin, when the folder holds something
    else than a run, or an unfinished one of other settings, when `fresh` would delete what people left or a
    store that a process has open, and when a run that starts afresh names a database with the record of
    another one.
    """
    recorded = not fresh and _is_a_record(run)
    if not _is_empty(run) and not run.config.exists() and not recorded:
        raise RunError(f"{run.directory} holds something else than a run: name an empty or a new folder")
    if not fresh:
        refuse_earlier_form(run)
    resumed = not fresh and _goes_on(run, config)
    if not resumed and not begins:
        number = config.schedule.cycles
        raise RunError(f"{run.directory} has nothing left to do for {number} cycles: give more with --cycles")
    if not resumed:
        _refuse_used(config.store)
    if recorded:
        notice = f"begins in {run.directory}, with the sessions that were recorded there"
    else:
        notice = f"resumes in {run.directory}" if resumed else _make_room(run, fresh=fresh)
    for path in (run.tasks, run.logs, run.objects_path, run.directory / "checkpoints"):
        path.mkdir(parents=True, exist_ok=True)
    # The report is on a schedule that changes now; beside the new one it would say that all of it is done.
    run.report.unlink(missing_ok=True)
    write_whole(run.config, dump(config))
    return Opened(run=run, notice=notice, resumed=resumed)


def _is_a_record(run: Run) -> bool:
    """Return whether the folder holds what `ostinato serve --model` recorded and nothing else."""
    own = {run.logs, run.processes, *run.directory.glob(f"{run.store_path.name}*")}
    return run.store_path.exists() and {*run.directory.iterdir()} <= {run.lock, *own}


def refuse_earlier_form(run: Run) -> None:
    """Raise RunError for a folder whose cycles are those of an earlier release, in which each took its own
    candidate to people: no stage of theirs says when a cycle began."""
    for folder in sorted((run.directory / "stages").glob("cycle-*/")):
        if not (folder / "began.json").exists() and any(folder.iterdir()):
            raise RunError(
                f"{folder} is a cycle of an earlier release, which this one cannot go on with: end it with "
                "that release, and begin anew in another folder from the checkpoint of its champion"
            )


def _refuse_used(config: StoreConfig) -> None:
    """Raise RunError for a bucket or database that a run has used: one record holds one chain of weights."""
    if config.objects and Objects.open(config.objects).list():
        raise RunError(
            f"{config.objects} holds the objects of another run, which no run deletes or mixes with its own: "
            "name another prefix in [store] objects"
        )
    if not config.url:
        return
    with closing(Store.open(config.url)) as store:
        if store.versions() or any(store.sessions(source=each, limit=1) for each in MADE_BY_RUNS):
            raise RunError(
                f"{store.database.where} holds the record of another run, which no run deletes or mixes with "
                "its own: create a new database with createdb, and name that one in [store] url"
            )


def _goes_on(run: Run, config: RunConfig) -> bool:
    """Return whether the folder holds a run of these settings with something left to do.

    Raises RunError for an unfinished run of other settings: nobody wants to lose sight of hours of work.
    """
    try:
        kept = load(RunConfig, run.config)
    except ConfigError:  # there is none, or it is that of an earlier release
        return False
    if run.report.exists() and kept.schedule == config.schedule:
        return False
    now = config.live  # its gateway may stand elsewhere, as the cycle's beside that of `ostinato team up`
    kept = replace(kept, live=replace(kept.live, host=now.host, port=now.port, address=now.address))
    fixed = FIXED if _is_in_a_cycle(run) else FIXED - {"live"}
    changed = sorted(name for name in fixed if getattr(kept, name) != getattr(config, name))
    if changed and not run.report.exists():
        raise RunError(
            f"{run.directory} holds an unfinished run with other settings of {', '.join(changed)}: change "
            "them back, name another folder with --directory, or delete that run with --fresh"
        )
    return not changed


def _is_in_a_cycle(run: Run) -> bool:
    begun = (run.directory / "stages").glob("cycle-*/")
    return not all(folder.with_suffix(".json").exists() for folder in begun)


def _make_room(run: Run, *, fresh: bool) -> str:
    """Move what lies in the folder aside, or delete it if `fresh`; return a sentence that says which."""
    if _is_empty(run):
        return f"starts afresh in {run.directory}"
    if is_open_elsewhere(run.store_path):
        raise RunError(f"{run.store_path} is open in another process, such as a gateway: stop that first")
    if not fresh:
        aside = _name_aside(run.directory)
        aside.mkdir()
        for path in _content(run):
            path.rename(aside / path.name)
        return f"starts afresh in {run.directory}; what lay there is in {aside}"
    if left := people(run.store_path):
        raise RunError(
            f"{run.directory} holds {left}, which --fresh does not delete: leave out --fresh and the folder "
            f"is moved aside, or remove it yourself"
        )
    stages = len(list(run.directory.glob("stages/*.json")))
    for path in _content(run):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return f"starts afresh in {run.directory}; deleted the run that lay there, with {stages} finished stages"


def _content(run: Run) -> list[Path]:
    """Return everything but the lock. The store and then the settings come last, so that a move or deletion
    that was cut short still shows what the folder is."""
    paths = [path for path in run.directory.iterdir() if path != run.lock]
    return sorted(paths, key=lambda path: (path == run.config, path.name.startswith(run.store_path.name)))


def _is_empty(run: Run) -> bool:
    """Return whether there is nothing but the lock."""
    with contextlib.suppress(FileNotFoundError):
        return not _content(run)
    return True


def _name_aside(directory: Path) -> Path:
    stem = f"{directory.resolve().name}-{time.strftime('%Y%m%d-%H%M%S')}"
    numbered = (f"{stem}-{number}" if number > 1 else stem for number in count(1))
    paths = (directory.resolve().with_name(name) for name in numbered)
    return next(path for path in paths if not path.exists())
