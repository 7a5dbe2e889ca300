"""A backend whose sandboxes are on a server: a client of the E2B protocol and of our own server's additions.

The additions are whole trees, usage, exams and templates by content; only our server understands them.
"""

import asyncio
import codecs
import secrets
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ostinato.fleet.client.client import ConflictError, GoneError, RefusalError, SandboxClient
from ostinato.fleet.client.process import RemoteProcess
from ostinato.fleet.client.unconfirmed import UnconfirmedSandboxes
from ostinato.fleet.protocol import archive
from ostinato.sandbox.base import (
    SNAPSHOT_FORMAT,
    Capabilities,
    ChangesError,
    Exam,
    ExecResult,
    Isolation,
    OnOutput,
    Process,
    Sandbox,
    SandboxError,
    Snapshot,
    SnapshotKind,
    Spec,
    Unsupported,
    Usage,
)
from ostinato.sandbox.protocol.entries import packed, unpacked

TIMEOUT_S = 3600.0
"""The longest life of a sandbox that is never destroyed."""
PATIENCE_S = 120.0
"""The time for which a refused sandbox is requested again."""
EXAM_S = 600.0
Signature = tuple[str, int, int, int]


class RemoteBackend:
    """The sandboxes of one server, to be opened by `connect`."""

    name = "remote"

    def __init__(self, client: SandboxClient, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self._client = client
        self.unconfirmed = UnconfirmedSandboxes(client)
        self._sent: dict[Signature, str] = {}
        self._alive: set[RemoteSandbox] = set()

    @classmethod
    async def connect(cls, url: str, key: str) -> "RemoteBackend":
        """Connect to a server. Raises SandboxError when it does not respond or is not ours."""
        client = SandboxClient(url, key)
        try:
            report = await client.call("GET", "/node")
            return cls(client, _capabilities(report["capabilities"]))
        except BaseException:
            await client.aclose()
            raise

    async def create(self, spec: Spec) -> Sandbox:
        return await self.start(spec)

    async def start(
        self, spec: Spec, template: str | None = None, timeout_s: float = TIMEOUT_S
    ) -> "RemoteSandbox":
        """Create a sandbox as `create` does, or from a template or snapshot of the server."""
        source = template or await self._send(spec.repo)
        return await self._start(spec, source, source, timeout_s)

    async def restore(self, snapshot: Snapshot, spec: Spec) -> Sandbox:
        if snapshot.format != SNAPSHOT_FORMAT:
            raise SandboxError(f"snapshot {snapshot.id} has format {snapshot.format}, not {SNAPSHOT_FORMAT}")
        if snapshot.backend != self.name:
            raise SandboxError(
                f"snapshot {snapshot.id} is of the {snapshot.backend} backend: restore it there"
            )
        template = await self._send(spec.repo)
        if snapshot.template != template:
            raise SandboxError(f"snapshot {snapshot.id} was taken above {snapshot.template}, not {template}")
        try:
            return await self._start(spec, snapshot.id, template, TIMEOUT_S)
        except GoneError as error:
            raise SandboxError(f"there is no snapshot {snapshot.id} on the server: {error}") from error

    async def remove(self, snapshot: Snapshot) -> None:
        try:
            await self._client.call("DELETE", f"/templates/{snapshot.id}")
        except GoneError:
            return

    async def examine(self, exam: Exam) -> list[dict[str, str]]:
        repo, tests = await self._send(exam.repo), await self._send(exam.tests)
        changes = {path: packed(data) for path, data in exam.changes.items()}
        body = {
            "repo": repo,
            "tests": tests,
            "changes": changes,
            "limits": asdict(exam.limits),
            "variations": exam.variations,
        }
        result = await self._client.call("POST", "/exams", body, within_s=EXAM_S)
        if "fault" in result:
            raise ChangesError(result["fault"])
        runs: list[dict[str, str]] = result["runs"]
        return runs

    async def aclose(self) -> None:
        try:
            await asyncio.gather(*(sandbox.destroy() for sandbox in tuple(self._alive)))
            if errors := await self.unconfirmed.end_all():
                raise errors[0]
        finally:
            await self._client.aclose()

    async def _send(self, repo: Path) -> str:
        """Send a directory unless the server has it; return its name there."""
        signature = await asyncio.to_thread(_signature, repo)
        known = self._sent.get(signature)
        if known is None:
            name, data = await asyncio.to_thread(archive.pack, repo)
            known = self._sent[signature] = await self._upload(name, data)
        return known

    async def _upload(self, name: str, data: bytes) -> str:
        try:
            await self._client.call("GET", f"/templates/{name}")
        except GoneError:
            await self._client.call("PUT", f"/templates/{name}", data=data, within_s=EXAM_S)
        return name

    async def _start(self, spec: Spec, source: str, template: str, timeout_s: float) -> "RemoteSandbox":
        """Request a sandbox until there is room. Raises RefusalError when there is none within PATIENCE_S."""
        if spec.mounts:
            raise Unsupported(self.name, f"mount {spec.mounts[0].source}", "a backend on this machine")
        if spec.image is not None:
            raise Unsupported(self.name, f"send the image {spec.image.root}", "a backend on this machine")
        await self.unconfirmed.end_all()
        name, until = "i" + secrets.token_hex(10), time.monotonic() + PATIENCE_S
        body = _request_body(spec, source, name, timeout_s)
        while True:
            try:
                with self.unconfirmed.tracking(name):
                    created = await self._client.call("POST", "/sandboxes", body)
                return self.register(created, spec, template)
            except RefusalError as error:
                if time.monotonic() + error.retry_after_s > until:
                    raise
                await asyncio.sleep(error.retry_after_s)

    def register(self, body: Mapping[str, Any], spec: Spec, template: str) -> "RemoteSandbox":
        """Register a sandbox from the server's response."""
        sandbox = RemoteSandbox(self, self._client, body, spec, template)
        self._alive.add(sandbox)
        return sandbox

    def unregister(self, sandbox: "RemoteSandbox") -> None:
        self._alive.discard(sandbox)


class RemoteSandbox:
    """One sandbox on a server."""

    def __init__(
        self,
        backend: RemoteBackend,
        client: SandboxClient,
        body: Mapping[str, Any],
        spec: Spec,
        template: str,
    ) -> None:
        self.id = str(body["sandboxID"])
        self.root = str(body["ostinato"]["root"])
        self.started_s = float(body["ostinato"]["spent"].get("started", 0.0))
        self._backend, self._client = backend, client
        self._spec, self._template = spec, template
        self._destroyed = False

    async def exec(
        self, command: str, *, timeout_s: float | None = None, on_output: OnOutput | None = None
    ) -> ExecResult:
        process = await self.start(command, timeout_s=timeout_s)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            async for chunk in process.output():
                if on_output is not None and (text := decoder.decode(chunk)):
                    on_output(text)
            return await process.wait()
        except BaseException:
            await asyncio.shield(_kill(process))
            raise

    async def start(self, command: str, *, timeout_s: float | None = None, stdin: bool = False) -> Process:
        self._check_alive()
        limits = self._spec.limits
        message = {
            "process": {"cmd": "/bin/sh", "args": ["-c", command], "cwd": self.root},
            "stdin": stdin,
            "timeoutS": limits.wall_s if timeout_s is None else timeout_s,
        }
        events = self._client.stream(self.id, "process.Process/Start", message)
        return await RemoteProcess.begin(self._client, self.id, events, limits)

    async def read(self, path: str) -> bytes:
        self._check_alive()
        return await self._client.download(self.id, path)

    async def write(self, path: str, data: bytes) -> None:
        self._check_alive()
        await self._client.upload(self.id, path, data)

    async def files(self) -> list[str]:
        paths: list[str] = (await self._tree(of="files"))["files"]
        return paths

    async def tree_hash(self) -> str:
        return str((await self._tree(of="hash"))["hash"])

    async def changes(self) -> dict[str, bytes | None]:
        changes = (await self._tree(of="changes"))["changes"]
        return {path: unpacked(data) for path, data in changes.items()}

    async def _tree(self, **message: str) -> dict[str, Any]:
        self._check_alive()
        return await self._client.rpc(self.id, "ostinato.Tree/Read", message)

    async def pause(self) -> None:
        try:
            await self._control("POST", "/pause", {})
        except ConflictError:
            if (await self._client.call("GET", f"/sandboxes/{self.id}"))["state"] != "paused":
                raise

    async def resume(self) -> None:
        await self._control("POST", "/resume", {})

    async def snapshot(self, kind: SnapshotKind = SnapshotKind.FILESYSTEM) -> Snapshot:
        taken = await self._control("POST", "/snapshots", {"memory": kind is SnapshotKind.FULL})
        extra = taken["ostinato"]
        return Snapshot(
            id=taken["snapshotID"],
            kind=SnapshotKind(extra["kind"]),
            backend=self._backend.name,
            template=self._template,
            path=Path(taken["snapshotID"]),
            bytes=extra["bytes"],
            created=extra["created"],
        )

    async def fork(self, n: int = 1) -> "list[Sandbox]":
        names = ["i" + secrets.token_hex(10) for _ in range(n)]
        body = {"count": n, "timeout": TIMEOUT_S, "ostinato": {"sandboxIDs": names}}
        with self._backend.unconfirmed.tracking(*names):
            forks = await self._control("POST", "/fork", body)
        children = [
            self._backend.register(fork["sandbox"], self._spec, self._template)
            for fork in forks
            if "sandbox" in fork
        ]
        failed = [fork["error"]["message"] for fork in forks if "error" in fork]
        if failed:
            await asyncio.gather(*(child.destroy() for child in children))
            raise SandboxError(f"{len(failed)} of {n} forks of {self.id} failed: {failed[0]}")
        return list(children)

    async def usage(self) -> Usage:
        self._check_alive()
        return Usage(**await self._client.rpc(self.id, "ostinato.Sandbox/Usage", {}))

    async def destroy(self) -> None:
        if self._destroyed:
            return
        self._destroyed = True
        self._backend.unregister(self)
        await self._backend.unconfirmed.end(self.id)

    async def list(self, path: str = ".") -> "list[str]":
        names: list[str] = (await self._tree(of="names", path=path))["names"]
        return names

    async def _control(self, verb: str, path: str, body: Mapping[str, Any]) -> Any:
        self._check_alive()
        return await self._client.call(verb, f"/sandboxes/{self.id}{path}", body)

    def _check_alive(self) -> None:
        if self._destroyed:
            raise SandboxError(f"sandbox {self.id} is destroyed: create another")


async def _kill(process: Process) -> None:
    """End a command that is no longer waited for; if the sandbox is gone, it has ended already."""
    with suppress(SandboxError):
        await process.signal(signal.SIGKILL)


def _request_body(spec: Spec, source: str, name: str, timeout_s: float) -> dict[str, Any]:
    extra: dict[str, Any] = {"sandboxID": name, "limits": asdict(spec.limits)}
    if spec.egress is not None:
        extra["egress"] = asdict(spec.egress)
    return {
        "templateID": source,
        "timeout": timeout_s,
        "metadata": dict(spec.labels),
        "envVars": dict(spec.environment),
        "ostinato": extra,
    }


def _capabilities(body: Mapping[str, Any]) -> Capabilities:
    fork = body["fork"]
    return Capabilities(
        isolation=Isolation(body["isolation"]),
        snapshots=frozenset(map(SnapshotKind, body["snapshots"])),
        fork=None if fork is None else SnapshotKind(fork),
        pause=body["pause"],
        egress=frozenset(body["egress"]),
        limits=frozenset(body["limits"]),
        lost=tuple(body["lost"]),
    )


def _signature(directory: Path) -> Signature:
    """Return a value that changes when any file in the directory does, as far as times and sizes show."""
    if not directory.is_dir():
        raise SandboxError(f"no repository at {directory}: give a directory")
    stats = [path.lstat() for path in directory.rglob("*")]
    newest = max((each.st_ctime_ns for each in stats), default=0)
    return str(directory.resolve()), len(stats), newest, sum(each.st_size for each in stats)
