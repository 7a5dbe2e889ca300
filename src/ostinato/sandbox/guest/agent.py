"""What a backend talks to in a sandbox: reads and writes files, runs commands: `sandbox.protocol.frames`.

When the backend's end of the link closes it kills what it started, and exits.
"""

import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any

from ostinato.sandbox.base import ChangesError, Limits, SandboxError
from ostinato.sandbox.exam import worker
from ostinato.sandbox.files import tree
from ostinato.sandbox.files import workspace as places
from ostinato.sandbox.files.workspace import Place
from ostinato.sandbox.guest.jobs import Job, Jobs, Recognise
from ostinato.sandbox.linux import processes
from ostinato.sandbox.protocol import frames
from ostinato.sandbox.protocol.agent_link import Link, Watch

Request = dict[str, Any]
Answer = tuple[dict[str, Any], bytes]
_EXPECTED = (OSError, SandboxError)
_LONGEST = 4000
"""Characters of an error's message: a path in it may be as long as its caller likes."""
_HUNG_UP = select.POLLHUP | select.POLLERR | select.POLLIN


class Agent:
    """The request loop. `oom`: see `Jobs`; `calls`: where an exam's worker would answer; `user`: who commands
    are, if not we; `crowd`: see `Jobs`."""

    def __init__(
        self,
        link: Link,
        place: Place,
        limits: Limits,
        *,
        oom: int,
        recognise: Recognise | None = None,
        calls: socket.socket | None = None,
        user: int | None = None,
        crowd: Callable[[], int] | None = None,
    ) -> None:
        self._link = link
        self._place = place
        self._most = limits.disk_mb << 20
        self._calls = calls
        self._watch = Watch()
        self._jobs = Jobs(
            place.root,
            limits,
            self._watch,
            tell=link.send,
            oom=oom,
            done=self._done,
            recognise=recognise,
            user=user,
            crowd=crowd,
        )
        self._answers: dict[str, Callable[[Request, bytes], Answer]] = {
            "hello": lambda *_: ({}, b""),
            "read": lambda request, _: ({}, tree.read(place.root, request["path"])),
            "write": self._write,
            "list": lambda request, _: _names(tree.names(place.root, request["path"])),
            "files": lambda *_: _names(tree.files(place.root)),
            "state": lambda *_: (self._state(), b""),
            "changes": self._changes,
            "apply": self._apply,
            "worker": self._worker,
            "pause": lambda *_: _nothing(self._jobs.pause),
            "resume": lambda *_: _nothing(self._jobs.resume),
            "usage": lambda *_: ({**processes.usage(), "disk_bytes": place.disk_bytes()}, b""),
            "pack": self._pack,
        }
        self._orders: dict[str, Callable[[Request, bytes], None]] = {
            "run": lambda request, _: self._jobs.start(request["id"], request),
            "credit": lambda request, _: self._jobs.credit(request["id"], request["bytes"]),
            "input": lambda request, body: self._jobs.feed(request["id"], body),
            "signal": lambda request, _: self._jobs.signal(request["id"], request["number"]),
        }

    def serve(self, begun: Callable[[], None] = lambda: None) -> None:
        """Until the backend hangs up; `begun` is called when it has been told that all is ready."""
        self._watch.add(self._link.incoming, _HUNG_UP, self._hear)
        self._link.send({"id": 0, "ready": True})
        begun()
        while self._link.open:
            self._watch.turn(self._jobs.patience_s())
            self._jobs.end_late()
        if os.getpid() != 1:
            processes.kill_all({})  # the kernel does it for the first process of a namespace

    def _hear(self, _: int) -> None:
        for request, body in self._link.receive():
            try:
                self._do(request, body)
            except MemoryError:
                why = f"what was written is too much for {request['op']!r}: it does not fit in memory"
                self._link.send({"id": request["id"], "error": ChangesError.__name__, "message": why})
            except _EXPECTED as error:
                message = {"error": type(error).__name__, "message": str(error)[:_LONGEST]}
                self._link.send({"id": request["id"], **message})

    def _do(self, request: Request, body: bytes) -> None:
        self._place.open_up()
        order = self._orders.get(request["op"])
        if order is not None:
            order(request, body)
            return
        answer, data = self._answers[request["op"]](request, body)
        self._link.send({"id": request["id"], **answer}, data)

    def _done(self, job: Job, status: int) -> None:
        duration_s = time.monotonic() - job.started
        answer = {"exit_code": status, "timed_out": job.timed_out, "duration_s": duration_s}
        try:
            state = self._state() if job.state else {}
        except (*_EXPECTED, MemoryError):
            state = {"tree": "", "pure": False}  # a tree that cannot be walked is like no other
        self._link.send({"id": job.id, **answer, **state}, job.tail.text().encode())

    def _state(self) -> dict[str, Any]:
        self._place.open_up()
        return places.state(self._place, alone=self._jobs.alone)

    def _write(self, request: Request, body: bytes) -> Answer:
        tree.write(self._place.root, request["path"], body)
        return {}, b""

    def _changes(self, *_: object) -> Answer:
        return {}, frames.pack_files(self._place.changes(self._most))

    def _apply(self, _: Request, body: bytes) -> Answer:
        tree.apply(self._place.root, frames.unpack_files(body))
        return {}, b""

    def _pack(self, request: Request, _: bytes) -> Answer:
        """Its output is not held back by credit: nothing else is to be done meanwhile."""
        for chunk in self._place.pack():
            self._link.send({"id": request["id"], "event": "output"}, chunk)
        return {}, b""

    def _worker(self, request: Request, _: bytes) -> Answer:
        calls, self._calls = self._calls, None
        if calls is None:
            raise SandboxError("this sandbox was created without a worker")
        root, variation = self._place.root, request["variation"]
        self._jobs.help(lambda: worker.serve(calls, root, variation), keep=(calls.fileno(),))
        calls.close()
        return {}, b""


def _names(names: list[str]) -> Answer:
    """Raises SandboxError when there are more than a backend takes."""
    body = frames.pack_names(names)
    if len(body) > frames.MAX_NAMES or len(names) > frames.MAX_FILES:
        raise SandboxError(f"{len(names)} names are more than can be told: list a directory at a time")
    return {}, body


def _nothing(call: Callable[[], None]) -> Answer:
    call()
    return {}, b""
