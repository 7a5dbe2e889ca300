"""The full screen of `ostinato code` on a real terminal: how long a person waits for it.

    python -m benchmarks.terminal [--aider PROGRAM] [--json]

Three things are timed at the other end of a pty of 100 by 40 cells, with a real gateway and a scripted model:
the start, until the prompt stands there; a key, until its letter is shown, while the model streams 500 tokens
a second; and a page up or down in a session of 2,000 messages, until the other page begins to show. The start
of aider stands beside it, where `--aider` names its program. The other end of the pty says what it is when it
is asked, as every terminal does.
"""

import argparse
import asyncio
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from fuzz.scripted_gateway import scripted_gateway

from benchmarks.measure import Figure, Run, quantile, table
from ostinato.gateway.access.keys import hash_key
from ostinato.harness.session_log import LogEventKind, Sessions
from ostinato.store import Store

SIZE = struct.pack("HHHH", 40, 100, 0, 0)
PACE = 500.0
ANSWER = "0123456789 " * 180
"""An answer of some two thousand tokens, of signs that nobody types."""
LETTERS = [chr(code) for code in range(0x400, 0x530) if not unicodedata.combining(chr(code))]
"""Letters that nothing else on the screen has. Each is typed once: what was typed comes back as a message."""
IN_A_ROUND = 15
"""The letters that are typed while one answer streams."""
MESSAGES = 2_000
PATIENCE_S = 60.0
WHO, ANSWER_WHO = "\x1b[c", b"\x1b[?62;22c"
"""The question for what a terminal is, and the answer of one with colours."""


class Screen:
    """A program on a pty; it reads all that is written there, and notes when."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], directory: Path) -> None:
        self.mine, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, SIZE)
        self.began = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=dict(environment),
            cwd=directory,
            start_new_session=True,
        )
        os.close(theirs)
        self.text = ""

    def type(self, text: str) -> float:
        """Press keys; return the time."""
        os.write(self.mine, text.encode())
        return time.perf_counter()

    def until(self, text: str) -> float:
        """Read until `text` was written; return when. Raises TimeoutError."""
        self.text, deadline = "", time.perf_counter() + PATIENCE_S
        while time.perf_counter() < deadline:
            if select.select([self.mine], [], [], 0.5)[0]:
                self.text += self._read()
                if text in self.text:
                    return time.perf_counter()
        raise TimeoutError(f"{text!r} did not come; the last was {self.text[-500:]!r}")

    def rest(self, quiet_s: float, most_s: float) -> None:
        """Read until nothing was written for so long, and for `most_s` at most: a cursor blinks for ever."""
        end = time.perf_counter() + most_s
        while time.perf_counter() < end and select.select([self.mine], [], [], quiet_s)[0]:
            self._read()

    def _read(self) -> str:
        text = os.read(self.mine, 65_536).decode(errors="replace")
        if WHO in text:
            os.write(self.mine, ANSWER_WHO)
        return text

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self.mine)


class Desk:
    """A repository, a state of one's own, and the commands that work in them."""

    def __init__(self, place: Path, url: str) -> None:
        self.repo, self.url, self._key = place / "repo", url, place / "key"
        self.repo.mkdir()
        (self.repo / "calc.py").write_text("x = 1\n")
        subprocess.run(["git", "init", "-q", self.repo], check=True)
        self._key.write_text("key\n")
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("OSTINATO")}
        self._environment |= {"OSTINATO_STATE": str(place / "state"), "TERM": "xterm-256color"}
        self._environment |= {"XDG_CONFIG_HOME": str(place / "config"), "HOME": str(place)}
        self.sessions = Sessions(directory=place / "state" / "sessions")

    def code(self, *more: str) -> Screen:
        place = ("--directory", str(self.repo), "--url", self.url, "--key-file", str(self._key))
        return Screen(
            [sys.executable, "-m", "ostinato.cli", "code", *place, *more], self._environment, self.repo
        )

    def aider(self, program: Path) -> Screen:
        quiet = ("--no-git", "--no-check-update", "--no-show-model-warnings", "--no-analytics")
        quiet += ("--no-show-release-notes", "--no-pretty")
        where = ("--model", "openai/ostinato", "--openai-api-base", f"{self.url}/v1")
        where += ("--openai-api-key", "key")
        return Screen([str(program), *quiet, *where], self._environment, self.repo)


def started(screen: Screen, prompt: str) -> float:
    """Return the seconds from the start of the program to its prompt, and end it."""
    try:
        return screen.until(prompt) - screen.began
    finally:
        screen.close()


def typed(desk: Desk, rounds: int) -> list[float]:
    """Return the seconds from each key to its letter on the screen, while answers stream."""
    screen, waits = desk.code(), list[float]()
    try:
        screen.until("shall I do")
        for start in range(0, rounds * IN_A_ROUND, IN_A_ROUND):
            screen.type("\r" if waits else "go\r")
            screen.until("0123456789")
            for letter in LETTERS[start : start + IN_A_ROUND]:
                screen.rest(0.1, most_s=0.1)
                pressed = screen.type(letter)
                waits.append(screen.until(letter) - pressed)
            screen.rest(1.5, most_s=8.0)  # the answer has ended, and what was typed is the next prompt
    finally:
        screen.close()
    return waits


def long_session(desk: Desk) -> str:
    """Begin a session, let it grow to 2,000 messages, and return its id."""
    screen = desk.code()
    screen.until("shall I do")
    screen.type("go\r")
    screen.until("0123456789")
    screen.rest(2.0, most_s=8.0)
    screen.close()
    id = next(desk.sessions.newest())[0]
    with desk.sessions.open(id) as log:
        for turn in range(1, MESSAGES // 2):
            log.append(LogEventKind.USER, text=f"question {turn}")
            message = {"role": "assistant", "content": f"Answer **{turn}**:\n\n```python\nx = {turn}\n```"}
            origin = {"arm": "main", "version": 1}
            log.append(
                LogEventKind.REPLY, turn=turn, message=message, finish="stop", tokens=9, broken=None, **origin
            )
            log.append(LogEventKind.OUTCOME, ending="finished", reason="")
    return id


def scrolled(desk: Desk, pages: int) -> list[float]:
    """Return the seconds from each page up or down to the first line of the other page."""
    screen, waits = desk.code("--resume", long_session(desk)), list[float]()
    try:
        screen.until(f"question {MESSAGES // 2 - 1}")
        screen.rest(3.0, most_s=8.0)
        for page in range(pages):
            pressed = screen.type("\x1b[5~" if page % 4 != 3 else "\x1b[6~")
            waits.append(screen.until("question") - pressed)
            screen.rest(0.1, most_s=1.0)
    finally:
        screen.close()
    return waits


async def measured(options: argparse.Namespace) -> dict[str, list[float]]:
    """Return the seconds of every wait, by what was waited for."""
    with tempfile.TemporaryDirectory(prefix="terminal-") as folder:
        place = Path(folder)
        store = Store.open(place / "store.db")
        store.add_key(hash_key("key"), "ada")
        script = [ANSWER] * (options.rounds + 2)
        async with scripted_gateway(place, store, script, tokens_a_second=PACE) as url:
            desk = Desk(place, url)
            waits: dict[str, list[float]] = {"start": [], "start_aider": []}
            for _ in range(options.starts):
                waits["start"].append(await asyncio.to_thread(started, desk.code(), "shall I do"))
                if options.aider is not None:
                    waits["start_aider"].append(
                        await asyncio.to_thread(started, desk.aider(options.aider), ">\x1b[0m")
                    )
            waits["key"] = await asyncio.to_thread(typed, desk, options.rounds)
            waits["page"] = await asyncio.to_thread(scrolled, desk, options.pages)
        store.close()
    return waits


def figures_of(waits: Mapping[str, Sequence[float]]) -> dict[str, Figure]:
    """Return medians and 99th percentiles in milliseconds."""
    found = {}
    for name, seconds in waits.items():
        if seconds:
            found[name] = quantile([1_000 * each for each in seconds])
            found[f"{name}_p99"] = quantile([1_000 * each for each in seconds], 0.99)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.terminal", description=__doc__)
    parser.add_argument("--starts", type=int, default=7)
    most = len(LETTERS) // IN_A_ROUND
    parser.add_argument(
        "--rounds", type=int, default=10, choices=range(1, most + 1), help="answers while somebody types"
    )
    parser.add_argument("--pages", type=int, default=200)
    parser.add_argument("--aider", type=Path, help="the program of aider")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with Run("terminal", "textual") as run:
        found = figures_of(asyncio.run(measured(options)))
        rows = [
            (name, found[name].text(1), found[f"{name}_p99"].text(1), str(found[name].n))
            for name in ("start", "start_aider", "key", "page")
            if name in found
        ]
        table(("milliseconds", "median", "p99", "n"), rows)
        run.finish({"ms": {name: asdict(each) for name, each in found.items()}}, as_json=options.json)


if __name__ == "__main__":
    main()
