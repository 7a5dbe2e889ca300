"""Process 1 of a sandbox: does what the backend asks, one request at a time (see `ostinato.sandbox.frames`).

It is forked from the zygote, never exec'd, so Python and pytest are already loaded; commands cannot signal it
(it is process 1), nor look into it (not dumpable). When the backend's socket closes it exits, and the kernel
kills everything else in the sandbox and takes its mounts away.
"""

import json
import os
import socket
from collections.abc import Callable
from typing import Any

from ostinato.sandbox import frames, layout, linux, overlay, tree, worker
from ostinato.sandbox.base import Limits, SandboxError
from ostinato.sandbox.command import Runner

Answer = tuple[dict[str, Any], bytes]
_EXPECTED = (OSError, SandboxError)


def live(
    control: socket.socket, calls: socket.socket | None, repo: str, limits: Limits, program: bytes
) -> None:
    """Finish the sandbox around this process and serve until the backend hangs up."""
    try:
        lower, upper = _confine(repo, limits, program)
    except OSError as error:
        control.sendall(
            frames.pack({"error": "SandboxError", "message": f"the sandbox did not open: {error}"})
        )
        return
    control.sendall(frames.pack({"ready": True}))
    Agent(control, calls, lower, upper, limits).serve()


def _confine(repo: str, limits: Limits, program: bytes) -> tuple[int, int]:
    linux.unshare(linux.NEW_MOUNT | linux.NEW_NET | linux.NEW_IPC | linux.NEW_UTS)
    socket.sethostname("sandbox")
    lower, upper = layout.enter(repo, limits)
    linux.drop_capabilities()
    linux.apply_filter(program)
    linux.die_with_parent()
    linux.set_dumpable(False)
    os.chdir(layout.REPO)
    return lower, upper


class Agent:
    """The request loop."""

    def __init__(
        self, control: socket.socket, calls: socket.socket | None, lower: int, upper: int, limits: Limits
    ) -> None:
        self._control = control
        self._calls = calls
        self._lower = f"/proc/self/fd/{lower}"
        self._upper = f"/proc/self/fd/{upper}"
        self._runner = Runner(layout.REPO, limits, control.fileno())
        self._operations: dict[str, Callable[[dict[str, Any], bytes], Answer]] = {
            "exec": self._exec,
            "read": lambda header, _: ({}, tree.read(layout.REPO, header["path"])),
            "write": self._write,
            "list": lambda header, _: ({"names": tree.names(layout.REPO, header["path"])}, b""),
            "files": lambda *_: ({"names": tree.files(layout.REPO)}, b""),
            "state": lambda *_: (self._state(), b""),
            "changes": self._changes,
            "apply": self._apply,
            "worker": self._worker,
        }

    def serve(self) -> None:
        while True:
            prefix = self._exactly(frames.PREFIX)
            if prefix is None:
                return
            header_length, body_length = frames.lengths(prefix)
            frame = self._exactly(header_length + body_length)
            if frame is None:
                return
            header = json.loads(frame[:header_length])
            self._control.sendall(frames.pack(*self._answer(header, frame[header_length:])))

    def _exactly(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            part = self._control.recv(count - len(data))
            if not part:
                return None
            data += part
        return data

    def _answer(self, header: dict[str, Any], body: bytes) -> Answer:
        try:
            return self._operations[header["op"]](header, body)
        except _EXPECTED as error:
            return {"error": type(error).__name__, "message": str(error)}, b""

    def _exec(self, header: dict[str, Any], _: bytes) -> Answer:
        result = self._runner.run(header["command"], header["timeout_s"])
        answer = {
            "exit_code": result.exit_code,
            "timed_out": result.timed_out,
            "duration_s": result.duration_s,
        }
        return {**answer, **self._state()}, result.output.encode()

    def _state(self) -> dict[str, Any]:
        return {"tree": tree.digest(layout.REPO), "pure": overlay.pure(self._upper, layout.TMP)}

    def _write(self, header: dict[str, Any], body: bytes) -> Answer:
        tree.write(layout.REPO, header["path"], body)
        return {}, b""

    def _changes(self, *_: object) -> Answer:
        files, body = frames.pack_files(overlay.changes(layout.REPO, self._lower, self._upper))
        return {"files": files}, body

    def _apply(self, header: dict[str, Any], body: bytes) -> Answer:
        tree.apply(layout.REPO, frames.unpack_files(header["files"], body))
        return {}, b""

    def _worker(self, *_: object) -> Answer:
        calls, self._calls = self._calls, None
        if calls is None:
            raise SandboxError("this sandbox was opened without a worker")
        self._runner.fork(lambda: worker.serve(calls, layout.REPO), keep=(calls.fileno(),))
        calls.close()
        return {}, b""
