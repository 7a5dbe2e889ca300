"""Snapshots on disk, each a directory that counts only once it is complete.

<state>/<id>/layer           all that was written above the template (see `ostinato.sandbox.files.layer`)
<state>/<id>/snapshot.json   the record, written last: without it the directory is no snapshot
"""

import asyncio
import dataclasses
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from ostinato.sandbox.base import SNAPSHOT_FORMAT, SandboxError, Snapshot, SnapshotKind, Spec
from ostinato.sandbox.files import layer, tree
from ostinato.sandbox.files.scratch import Scratch

LAYER, RECORD = "layer", "snapshot.json"
Write = Callable[[bytes], None]


class SnapshotStore:
    """The snapshots of one backend, in `state` or, for None, in a temporary directory until `close`."""

    def __init__(self, backend: str, state: Path | None) -> None:
        self._backend = backend
        self._state = state
        self._temporary: Scratch | None = None

    def begin(self) -> Path:
        """Return a fresh directory, for `finish` or `drop`; raises SandboxError."""
        if self._state is None:
            self._temporary = Scratch("snapshots")
            self._state = self._temporary.path
        path = self._state / uuid.uuid4().hex
        try:
            path.mkdir(parents=True)
        except OSError as error:
            raise SandboxError(f"no snapshot at {path}: {error}; free some space or name another") from error
        return path

    def finish(self, path: Path, kind: SnapshotKind, repo: Path) -> Snapshot:
        """Make the files in `path` a snapshot of a sandbox that started from `repo`."""
        try:
            snapshot = Snapshot(
                id=path.name,
                kind=kind,
                backend=self._backend,
                template=tree.digest(str(repo)),
                path=path,
                bytes=sum(file.stat().st_size for file in path.iterdir()),
                created=time.time(),
            )
            _sync(path / LAYER)
            part = path / f"{RECORD}.part"
            part.write_text(json.dumps({**dataclasses.asdict(snapshot), "path": str(path)}, indent=1))
            _sync(part)
            part.rename(path / RECORD)
            _sync(path)
        except OSError as error:
            raise SandboxError(f"the snapshot at {path} could not be written: {error}") from error
        return snapshot

    def check(self, snapshot: Snapshot, spec: Spec) -> Path:
        """Return the path of a snapshot's layer; raises SandboxError when it cannot be restored here.

        It has to be of this backend and format, and above the same template.
        """
        for what, expected, actual in (
            ("a snapshot of the backend", self._backend, snapshot.backend),
            ("a snapshot of format", SNAPSHOT_FORMAT, snapshot.format),
        ):
            if expected != actual:
                raise SandboxError(
                    f"{snapshot.id} is {what} {actual}, this restores {expected}: take another"
                )
        if not (snapshot.path / RECORD).is_file():
            raise SandboxError(f"there is no snapshot at {snapshot.path}: it was removed, or never finished")
        template = tree.digest(str(spec.repo))
        if template != snapshot.template:
            raise SandboxError(
                f"{snapshot.id} started from template {snapshot.template}, {spec.repo} is {template}: "
                "restore it above what it was made from"
            )
        return snapshot.path / LAYER

    def drop(self, path: Path) -> None:
        """Remove a directory, the record first, so that a half-removed one is no snapshot."""
        (path / RECORD).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=not path.exists())

    async def close(self) -> None:
        """Remove all snapshots if they are in a temporary directory."""
        if self._temporary is not None:
            await asyncio.to_thread(self._temporary.close)
            self._temporary, self._state = None, None


def load(path: Path) -> Snapshot:
    """Return the snapshot in a directory; raises SandboxError when there is none, or only a part."""
    try:
        record = json.loads((path / RECORD).read_text())
        return Snapshot(**{**record, "kind": SnapshotKind(record["kind"]), "path": path})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SandboxError(f"there is no whole snapshot at {path}: {error}") from error


def load_complete(directory: Path) -> list[Snapshot]:
    """Return the snapshots that an earlier runner left in a directory, and remove unfinished ones."""
    snapshots = []
    for path in sorted(directory.iterdir()) if directory.is_dir() else []:
        if (path / RECORD).is_file():
            snapshots.append(load(path))
        else:
            shutil.rmtree(path)
    return snapshots


def open_layer(path: Path) -> int:
    """Open a layer whose digest is right; raises SandboxError."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise SandboxError(f"the layer {path} cannot be read: {error}") from error
    try:
        layer.check(file)
    except BaseException:
        os.close(file)
        raise
    return file


def _sync(path: Path) -> None:
    if not path.exists():
        return
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
