"""The agent in a sandbox: it reads and writes files and runs commands for the backend.

Its requests and responses are listed in `sandbox.protocol.frames`. When the backend closes the connection,
the agent kills all that it started, and exits.
"""

import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any

from ostinato.sandbox.base import ChangesError, Limits, SandboxError
from ostinato.sandbox.exam.judged import worker
from ostinato.sandbox.files import tree
from ostinato.sandbox.files import workspace as workspaces
from ostinato.sandbox.files.workspace import Workspace
from ostinato.sandbox.guest.jobs import FindForkBody, Job, Jobs
from ostinato.sandbox.linux import processes
from ostinato.sandbox.protocol import frames
from ostinato.sandbox.protocol.agent_link import AgentLink, Poller

Request = dict[str, Any]
Response = tuple[dict[str, Any], bytes]
_EXPECTED = (OSError, SandboxError)
_MAX_MESSAGE = 4000
"""The most characters of an error's message: a path in it may be as long as its caller likes."""
_HUNG_UP = select.POLLHUP | select.POLLERR | select.POLLIN


class SandboxAgent:
    """Serves the requests of one connection.

    `calls` is the socket for an exam's worker, if there may be one. For `oom`, `user` and
    `count_foreign_threads` see `Jobs`.
    """

    def __init__(
        self,
        link: AgentLink,
        workspace: Workspace,
        limits: Limits,
        *,
        oom: int,
        find_fork_body: FindForkBody | None = None,
        calls: socket.socket | None = None,
        user: int | None = None,
        count_foreign_threads: Callable[[], int] | None = None,
    ) -> None:
        self._link = link
        self._workspace = workspace
        self._max_changes = limits.disk_mb << 20
        self._calls = calls
        self._poller = Poller()
        self._jobs = Jobs(
            workspace.root,
            limits,
            self._poller,
            send=link.send,
            oom=oom,
            on_end=self._respond_to_run,
            find_fork_body=find_fork_body,
            user=user,
            count_foreign_threads=count_foreign_threads,
        )
        self._handlers: dict[str, Callable[[Request, bytes], Response]] = {
            "hello": lambda *_: ({}, b""),
            "read": lambda request, _: ({}, tree.read(workspace.root, request["path"])),
            "write": self._write,
            "list": lambda request, _: _names(tree.names(workspace.root, request["path"])),
            "files": lambda *_: _names(tree.files(workspace.root)),
            "state": lambda *_: (self._state(), b""),
            "changes": self._changes,
            "apply": self._apply,
            "worker": self._worker,
            "pause": lambda *_: _empty(self._jobs.pause),
            "resume": lambda *_: _empty(self._jobs.resume),
            "pack": self._pack,
        }
        self._later_handlers: dict[str, Callable[[Request, bytes], None]] = {
            "run": lambda request, _: self._jobs.start(request["id"], request),
            "credit": lambda request, _: self._jobs.credit(request["id"], request["bytes"]),
            "input": lambda request, body: self._jobs.feed(request["id"], body),
            "signal": lambda request, _: self._jobs.signal(request["id"], request["number"]),
        }

    def serve(self, begun: Callable[[], None] = lambda: None) -> None:
        """Serve until the backend hangs up; `begun` is called once the backend knows that all is ready."""
        self._poller.add(self._link.incoming, _HUNG_UP, self._receive)
        self._link.send({"id": 0, "ready": True})
        begun()
        while self._link.open:
            self._poller.poll_once(self._jobs.seconds_to_deadline())
            self._jobs.end_late()
        if os.getpid() != 1:
            processes.kill_all({})  # the kernel does it for the first process of a namespace

    def _receive(self, _: int) -> None:
        for request, body in self._link.receive():
            try:
                self._handle(request, body)
            except MemoryError:
                message = f"the written files are too much for {request['op']!r}: they do not fit in memory"
                self._link.send({"id": request["id"], "error": ChangesError.__name__, "message": message})
            except _EXPECTED as error:
                response = {"error": type(error).__name__, "message": str(error)[:_MAX_MESSAGE]}
                self._link.send({"id": request["id"], **response})

    def _handle(self, request: Request, body: bytes) -> None:
        self._workspace.open_up()
        later = self._later_handlers.get(request["op"])
        if later is not None:  # it has no response, or sends one later
            later(request, body)
            return
        response, data = self._handlers[request["op"]](request, body)
        self._link.send({"id": request["id"], **response}, data)

    def _respond_to_run(self, job: Job, status: int) -> None:
        duration_s = time.monotonic() - job.started
        response = {"exit_code": status, "timed_out": job.timed_out, "duration_s": duration_s}
        try:
            state = self._state() if job.state else {}
        except (*_EXPECTED, MemoryError):
            state = {"tree": "", "pure": False}  # a tree that cannot be walked equals no other
        self._link.send({"id": job.id, **response, **state}, job.tail.text().encode())

    def _state(self) -> dict[str, Any]:
        self._workspace.open_up()
        return workspaces.state(self._workspace, alone=self._jobs.alone)

    def _write(self, request: Request, body: bytes) -> Response:
        tree.write(self._workspace.root, request["path"], body)
        return {}, b""

    def _changes(self, *_: object) -> Response:
        return {}, frames.pack_files(self._workspace.changes(self._max_changes))

    def _apply(self, _: Request, body: bytes) -> Response:
        tree.apply(self._workspace.root, frames.unpack_files(body))
        return {}, b""

    def _pack(self, request: Request, _: bytes) -> Response:
        """Send all written files as output, without credit: the agent has nothing else to do meanwhile."""
        for chunk in self._workspace.pack():
            self._link.send({"id": request["id"], "event": "output"}, chunk)
        return {}, b""

    def _worker(self, request: Request, _: bytes) -> Response:
        calls, self._calls = self._calls, None
        if calls is None:
            raise SandboxError("this sandbox was created without a worker")
        root, variation = self._workspace.root, request["variation"]
        self._jobs.start_helper(lambda: worker.serve(calls, root, variation), keep=(calls.fileno(),))
        calls.close()
        return {}, b""


def _names(names: list[str]) -> Response:
    """Return a response with names; raises SandboxError when they are more than a backend takes."""
    body = frames.pack_names(names)
    if len(body) > frames.MAX_NAMES or len(names) > frames.MAX_FILES:
        raise SandboxError(f"{len(names)} names are too many for one response: list a directory at a time")
    return {}, body


def _empty(call: Callable[[], None]) -> Response:
    call()
    return {}, b""
