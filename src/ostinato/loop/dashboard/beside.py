"""`ostinato dashboard` beside `serve` and `demo`: a process of its own, which ends with them."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from ostinato import extras
from ostinato.loop.dashboard.commands import DASHBOARD
from ostinato.loop.placement.local import die_with_parent

STOP_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A dashboard that runs beside something else, or the reason why none does.

    >>> Beside(words="no dashboard: the port is taken").address
    ''
    """

    words: str
    """The line for the person who started it."""
    address: str = ""
    """The address that lets that person in; empty where no dashboard runs."""
    process: subprocess.Popen[str] | None = None

    def stay(self) -> None:
        """Wait until it ends, or until Ctrl-C."""
        if self.process is not None:
            with contextlib.suppress(KeyboardInterrupt):
                self.process.wait()


@contextmanager
def dashboard_beside(log: Path, *arguments: str) -> Iterator[Beside]:
    """Run `ostinato dashboard` on a free port with these arguments until the block ends.

    What it says goes to `log`. A dashboard that does not start is no error of what it would have shown: the
    words say why.
    """
    if find_spec("jinja2") is None:
        yield Beside(words=f"no dashboard: {extras.sentence('jinja2', DASHBOARD)}")
        return
    command = [sys.executable, "-m", "ostinato", "dashboard", "--port", "0", "--json", *arguments]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # Ctrl-C is for the process that started it
            preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509
        )
    try:
        yield _started(process, log)
    finally:
        _stop(process)


def _started(process: subprocess.Popen[str], log: Path) -> Beside:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.wait()
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        return Beside(words=f"no dashboard: {last[0] if last else 'it ended at once'}")
    address = json.loads(line)["address"]
    return Beside(words=f"see it: {address}", address=address, process=process)


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
