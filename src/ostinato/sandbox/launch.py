"""Starts and stops the zygote process."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.process import COMMAND_ENVIRONMENT

START_S = 60.0
"""How long loading pytest may take, on a busy machine."""
STOP_S = 5.0


class ZygoteProcess:
    """A running zygote and the socket its requests go to."""

    def __init__(self, process: subprocess.Popen[bytes], requests: socket.socket) -> None:
        self._process = process
        self._requests = requests

    @classmethod
    async def start(cls) -> "ZygoteProcess":
        """Start one and wait until it is ready; raises SandboxError with the reason when it cannot run."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            zygote = cls(_spawn(theirs.fileno()), ours)
        try:
            await zygote._wait_until_ready()
        except BaseException:
            await zygote.stop()
            raise
        return zygote

    async def _wait_until_ready(self) -> None:
        self._requests.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            data = await asyncio.wait_for(loop.sock_recv(self._requests, 65536), START_S)
        except TimeoutError:
            raise SandboxError(
                f"the zygote was not ready after {START_S:.0f} s: is the machine overloaded?"
            ) from None
        answer = (
            json.loads(data) if data else {"error": "it ended at its start: try `python -m pytest --version`"}
        )
        if "error" in answer:
            raise SandboxError(f"namespaces cannot be used here: {answer['error']}; use the process backend")

    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, request: Mapping[str, Any], sockets: Sequence[socket.socket]) -> None:
        """Send a request with the sockets for the new child; raises SandboxError when the zygote is gone."""
        try:
            socket.send_fds(
                self._requests, [json.dumps(request).encode()], [sock.fileno() for sock in sockets]
            )
        except OSError as error:
            raise SandboxError(f"the zygote is gone ({error}): open again, another is started") from error

    async def stop(self) -> None:
        """Hang up, wait until it and all its children ended, by force after a while."""
        self._requests.close()
        try:
            await asyncio.to_thread(self._process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)


def _spawn(requests: int) -> subprocess.Popen[bytes]:
    # standard error stays the runner's: a zygote that fails says why there
    return subprocess.Popen(
        [sys.executable, "-m", "ostinato.sandbox.zygote", str(requests)],
        pass_fds=[requests],
        cwd="/",
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def _environment() -> dict[str, str]:
    """What commands will see: nothing of the runner's own environment but where its Python finds modules."""
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    own = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return {**COMMAND_ENVIRONMENT, **own, "PATH": path, "HOME": "/tmp"}  # noqa: S108
