"""The warm process that every sandbox and judge is forked from: `python -m ostinato.sandbox.zygote FD`.

    backend ──request + sockets──► zygote ──fork──► agent (process 1 of a sandbox) ──fork──► commands, worker
                                      └─────fork──► judge
    backend ◄────────────── frames, reports ───────── agent, judge

Requests are JSON over a SOCK_SEQPACKET socket, one packet each, with the sockets that the child is to use:

    {"op": "sandbox", "repo": path, "limits": {…}}                 sockets: control [, calls]
    {"op": "judge", "tests": path, "names": […], "wall_s": n}      sockets: results, calls

The zygote answers only once, at its start: `{"ready": true}` or `{"error": why}`. It is process 1 of a pid
namespace around all others: when it ends, however that happens, the kernel ends everything it ever forked.
"""

import array
import contextlib
import json
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

from ostinato.sandbox import agent, judge, layout, linux, warm
from ostinato.sandbox.base import Limits

MAX_REQUEST = 1 << 18
MAX_SOCKETS = 2
_JUDGE_MEMORY = 2 << 30
_JUDGE_GRACE_S = 4


def main() -> None:
    requests = socket.socket(fileno=int(sys.argv[1]))
    try:
        linux.die_with_parent()
        _prepare()
    except (OSError, RuntimeError) as error:
        requests.send(json.dumps({"error": str(error)}).encode())
        raise
    child = os.fork()
    if child:
        requests.close()
        os.waitpid(child, 0)
        return
    linux.die_with_parent()
    requests.send(b'{"ready": true}')
    Zygote(requests).serve()


def _prepare() -> None:
    sys.path[:] = [path for path in sys.path if path not in ("", "/")]
    warm.prepare()
    layout.build_root()
    linux.unshare(linux.NEW_NET | linux.NEW_IPC | linux.NEW_UTS)


class Zygote:
    """Forks a child for each request."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._pid_namespace = os.open(f"{layout.HOST}/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._program = linux.filter_program()
        signal.signal(signal.SIGCHLD, _reap)  # by hand, so that their CPU time is counted as ours

    def serve(self) -> None:
        """Until the backend hangs up; then wait for the children, which hear the same silence."""
        while True:
            request, sockets = _receive(self._requests)
            if request is None:
                break
            self._start(request, sockets)
            for sock in sockets:
                sock.close()
        self._requests.close()
        with_children = True
        while with_children:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                with_children = False

    def _start(self, request: dict[str, Any], sockets: list[socket.socket]) -> None:
        if request["op"] == "sandbox":
            self._fork_into_pid_namespace(lambda: self._become_agent(request, sockets))
        else:
            self._fork(lambda: _become_judge(request, sockets))

    def _fork_into_pid_namespace(self, body: Callable[[], None]) -> None:
        linux.unshare(linux.NEW_PID)
        try:
            self._fork(body)
        finally:
            linux.setns(self._pid_namespace, linux.NEW_PID)

    def _fork(self, body: Callable[[], None]) -> None:
        if os.fork():
            return
        try:
            self._requests.close()
            os.close(self._pid_namespace)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            body()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    def _become_agent(self, request: dict[str, Any], sockets: list[socket.socket]) -> None:
        calls = sockets[1] if len(sockets) > 1 else None
        agent.live(sockets[0], calls, request["repo"], Limits(**request["limits"]), self._program)


def _reap(*_: object) -> None:
    """Every child that has ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become_judge(request: dict[str, Any], sockets: list[socket.socket]) -> None:
    results, calls = sockets
    wall_s: float = request["wall_s"]
    linux.die_with_parent()
    signal.alarm(int(wall_s) + _JUDGE_GRACE_S)
    resource.setrlimit(resource.RLIMIT_AS, (_JUDGE_MEMORY, _JUDGE_MEMORY))
    linux.unshare(linux.NEW_MOUNT)
    linux.mount("tmpfs", layout.SCRATCH, "tmpfs", linux.NOSUID | linux.NODEV, "size=64m")
    layout.cover_tmp(layout.SCRATCH)
    judge.run(results, calls, layout.HOST + request["tests"], request["names"], wall_s)


def _receive(requests: socket.socket) -> tuple[dict[str, Any] | None, list[socket.socket]]:
    space = socket.CMSG_SPACE(MAX_SOCKETS * array.array("i").itemsize)
    data, ancillary, _, _ = requests.recvmsg(MAX_REQUEST, space, socket.MSG_CMSG_CLOEXEC)
    numbers = array.array("i")
    for _level, _kind, payload in ancillary:
        numbers.frombytes(payload)
    return (json.loads(data) if data else None), [socket.socket(fileno=number) for number in numbers]


if __name__ == "__main__":
    main()
