"""A backend whose sandboxes are elsewhere: a client of the E2B protocol, of our own server's above all.

What E2B has no word for (whole trees, usage, exams, templates by content) only our server answers.
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

from ostinato.fleet.client.client import Client, ConflictError, GoneError, RefusalError
from ostinato.fleet.client.debts import Debts
from ostinato.fleet.client.process import RemoteProcess
from ostinato.fleet.protocol import bundle
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
"""How long a sandbox may live that nobody destroys."""
PATIENCE_S = 120.0
"""How long a refused sandbox is asked for again."""
EXAM_S = 600.0
Signature = tuple[str, int, int, int]


class RemoteBackend:
    """Sandboxes of one server. `connect` makes one."""

    name = "remote"

    def __init__(self, client: Client, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self._client = client
        self.debts = Debts(client)
        self._sent: dict[Signature, str] = {}
        self._alive: set[RemoteSandbox] = set()

    @classmethod
    async def connect(cls, url: str, key: str) -> "RemoteBackend":
        """Raises SandboxError when the server does not answer, or is not ours."""
        client = Client(url, key)
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
        """As `create`, or from a template or snapshot of the server; for at most `timeout_s` seconds."""
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
        answer = await self._client.call("POST", "/exams", body, within_s=EXAM_S)
        if "fault" in answer:
            raise ChangesError(answer["fault"])
        found: list[dict[str, str]] = answer["runs"]
        return found

    async def aclose(self) -> None:
        try:
            await asyncio.gather(*(sandbox.destroy() for sandbox in tuple(self._alive)))
            if errors := await self.debts.settle():
                raise errors[0]
        finally:
            await self._client.aclose()

    async def _send(self, repo: Path) -> str:
        """The name under which the server knows a directory as it is now."""
        signature = await asyncio.to_thread(_signature, repo)
        known = self._sent.get(signature)
        if known is None:
            name, data = await asyncio.to_thread(bundle.pack, repo)
            known = self._sent[signature] = await self._upload(name, data)
        return known

    async def _upload(self, name: str, data: bytes) -> str:
        try:
            await self._client.call("GET", f"/templates/{name}")
        except GoneError:
            await self._client.call("PUT", f"/templates/{name}", data=data, within_s=EXAM_S)
        return name

    async def _start(self, spec: Spec, source: str, template: str, timeout_s: float) -> "RemoteSandbox":
        """Asks until there is room. Raises RefusalError when there is none for long."""
        if spec.mounts:
            raise Unsupported(self.name, f"mount {spec.mounts[0].source}", "a backend on this machine")
        await self.debts.settle()
        name, until = "i" + secrets.token_hex(10), time.monotonic() + PATIENCE_S
        body = _wish(spec, source, name, timeout_s)
        while True:
            try:
                with self.debts.owing(name):
                    told = await self._client.call("POST", "/sandboxes", body)
                return self.enter(told, spec, template)
            except RefusalError as error:
                if time.monotonic() + error.retry_after_s > until:
                    raise
                await asyncio.sleep(error.retry_after_s)

    def enter(self, told: Mapping[str, Any], spec: Spec, template: str) -> "RemoteSandbox":
        """A sandbox that the server has told of."""
        sandbox = RemoteSandbox(self, self._client, told, spec, template)
        self._alive.add(sandbox)
        return sandbox

    def left(self, sandbox: "RemoteSandbox") -> None:
        self._alive.discard(sandbox)


class RemoteSandbox:
    """One sandbox on a server."""

    def __init__(
        self, backend: RemoteBackend, client: Client, told: Mapping[str, Any], spec: Spec, template: str
    ) -> None:
        self.id = str(told["sandboxID"])
        self.root = str(told["ostinato"]["root"])
        self.started_s = float(told["ostinato"]["spent"].get("started", 0.0))
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
        found: list[str] = (await self._tree(of="files"))["files"]
        return found

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
        told = await self._control("POST", "/snapshots", {"memory": kind is SnapshotKind.FULL})
        extra = told["ostinato"]
        return Snapshot(
            id=told["snapshotID"],
            kind=SnapshotKind(extra["kind"]),
            backend=self._backend.name,
            template=self._template,
            path=Path(told["snapshotID"]),
            bytes=extra["bytes"],
            created=extra["created"],
        )

    async def fork(self, n: int = 1) -> "list[Sandbox]":
        names = ["i" + secrets.token_hex(10) for _ in range(n)]
        body = {"count": n, "timeout": TIMEOUT_S, "ostinato": {"sandboxIDs": names}}
        with self._backend.debts.owing(*names):
            answers = await self._control("POST", "/fork", body)
        born = [
            self._backend.enter(answer["sandbox"], self._spec, self._template)
            for answer in answers
            if "sandbox" in answer
        ]
        failed = [answer["error"]["message"] for answer in answers if "error" in answer]
        if failed:
            await asyncio.gather(*(child.destroy() for child in born))
            raise SandboxError(f"{len(failed)} of {n} forks of {self.id} failed: {failed[0]}")
        return list(born)

    async def usage(self) -> Usage:
        self._check_alive()
        return Usage(**await self._client.rpc(self.id, "ostinato.Sandbox/Usage", {}))

    async def destroy(self) -> None:
        if self._destroyed:
            return
        self._destroyed = True
        self._backend.left(self)
        await self._backend.debts.end(self.id)

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
    """What nobody waits for any more ends; if the sandbox is gone it has."""
    with suppress(SandboxError):
        await process.signal(signal.SIGKILL)


def _wish(spec: Spec, source: str, name: str, timeout_s: float) -> dict[str, Any]:
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


def _capabilities(told: Mapping[str, Any]) -> Capabilities:
    fork = told["fork"]
    return Capabilities(
        isolation=Isolation(told["isolation"]),
        snapshots=frozenset(map(SnapshotKind, told["snapshots"])),
        fork=None if fork is None else SnapshotKind(fork),
        pause=told["pause"],
        egress=frozenset(told["egress"]),
        limits=frozenset(told["limits"]),
        lost=tuple(told["lost"]),
    )


def _signature(directory: Path) -> Signature:
    """Changes when any file in it does, as far as times and sizes tell."""
    if not directory.is_dir():
        raise SandboxError(f"no repository at {directory}: give a directory")
    stats = [path.lstat() for path in directory.rglob("*")]
    newest = max((each.st_ctime_ns for each in stats), default=0)
    return str(directory.resolve()), len(stats), newest, sum(each.st_size for each in stats)
