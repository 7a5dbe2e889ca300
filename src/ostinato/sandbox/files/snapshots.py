"""Snapshots on disk: a directory each, complete or not there.

<state>/<id>/layer           what was written above the template (see `ostinato.sandbox.files.layer`)
<state>/<id>/snapshot.json   the record, written last: without it there is no snapshot
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
    """Where one backend keeps its snapshots. `state` None: in a temporary directory, gone with `close`."""

    def __init__(self, backend: str, state: Path | None) -> None:
        self._backend = backend
        self._state = state
        self._temporary: Scratch | None = None

    def begin(self) -> Path:
        """A fresh directory, to be given to `finish` or `drop`; raises SandboxError."""
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
        """Make what was written in `path` a snapshot of a sandbox that started from `repo`."""
        try:
            return self._finish(path, kind, tree.digest(str(repo)))
        except OSError as error:
            raise SandboxError(f"the snapshot at {path} could not be written: {error}") from error

    def _finish(self, path: Path, kind: SnapshotKind, template: str) -> Snapshot:
        size = sum(file.stat().st_size for file in path.iterdir())
        snapshot = Snapshot(
            id=path.name,
            kind=kind,
            backend=self._backend,
            template=template,
            path=path,
            bytes=size,
            created=time.time(),
        )
        _sync(path / LAYER)
        part = path / f"{RECORD}.part"
        part.write_text(json.dumps({**dataclasses.asdict(snapshot), "path": str(path)}, indent=1))
        _sync(part)
        part.rename(path / RECORD)
        _sync(path)
        return snapshot

    def check(self, snapshot: Snapshot, spec: Spec) -> Path:
        """The file of its layer; raises SandboxError, by name, for what does not fit here."""
        for what, wanted, found in (
            ("a snapshot of the backend", self._backend, snapshot.backend),
            ("a snapshot of format", SNAPSHOT_FORMAT, snapshot.format),
        ):
            if wanted != found:
                raise SandboxError(f"{snapshot.id} is {what} {found}, this restores {wanted}: take another")
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
        """Take a directory away, the record first: what is left half-way is no snapshot."""
        (path / RECORD).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=not path.exists())

    async def close(self) -> None:
        """Drop them all, where the directory is our own."""
        if self._temporary is not None:
            await asyncio.to_thread(self._temporary.close)
            self._temporary, self._state = None, None


def load(path: Path) -> Snapshot:
    """The snapshot in a directory; raises SandboxError when there is no whole one."""
    try:
        found = json.loads((path / RECORD).read_text())
        return Snapshot(**{**found, "kind": SnapshotKind(found["kind"]), "path": path})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SandboxError(f"there is no whole snapshot at {path}: {error}") from error


def whole(directory: Path) -> list[Snapshot]:
    """Those that a runner before this one left in a directory; what it was still writing is taken away."""
    found = []
    for path in sorted(directory.iterdir()) if directory.is_dir() else []:
        if (path / RECORD).is_file():
            found.append(load(path))
        else:
            shutil.rmtree(path)
    return found


def open_layer(path: Path) -> int:
    """An open, whole layer; raises SandboxError."""
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
