"""A real terminal (a pty) with `ostinato code` in it, and what a person would type."""

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Self

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\r")


def take_terminal() -> None:
    """Makes standard input the terminal that Ctrl-C comes from."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """Starts the command on a pty; use as an async context manager."""

    def __init__(self, *arguments: str, home: Path) -> None:
        self.screen = ""
        self.raw = ""
        """What `screen` is, with its colours."""
        self._seen = 0
        mine, theirs = pty.openpty()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OSTINATO")}
        environment |= {"OSTINATO_STATE": str(home), "XDG_CONFIG_HOME": str(home / "config"), "TERM": "xterm"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ostinato.cli", "code", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment | {"COLUMNS": "100"},
            start_new_session=True,
            preexec_fn=take_terminal,  # noqa: PLW1509
        )
        os.close(theirs)
        os.set_blocking(mine, False)
        self._mine = mine

    async def until(self, text: str) -> str:
        """Reads until `text` comes up after what was read before; what came up to it."""
        while text not in self.screen[self._seen :]:
            try:
                data = os.read(self._mine, 65536)
            except BlockingIOError:
                data = b""
            except OSError as error:  # the other end is closed
                raise AssertionError(f"{text!r} did not come up in:\n{self.screen[self._seen :]}") from error
            self._add(data)
            await asyncio.sleep(0.01)
        at = self.screen.index(text, self._seen) + len(text)
        shown, self._seen = self.screen[self._seen : at], at
        return shown

    def _add(self, data: bytes) -> None:
        text = data.decode(errors="replace")
        self.raw += text
        self.screen += ESCAPES.sub("", text)

    def type(self, text: str) -> None:
        os.write(self._mine, text.encode())

    def interrupt(self) -> None:
        self.type("\x03")

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)

    async def ended(self) -> int:
        while self.process.poll() is None:
            with contextlib.suppress(OSError):
                self._add(os.read(self._mine, 65536))
            await asyncio.sleep(0.01)
        return self.process.returncode

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        self.process.wait()
        os.close(self._mine)
