"""Kills of everything that `ostinato team up` runs, under the traffic of scripted developers.

People are served again when each developer has the answer to a question that was asked after the kill; the
null is the same at moments without one. A turn is acknowledged when its whole answer has arrived: then it is
in the record, once.
"""

import asyncio
import os
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import aiohttp

from fuzz.people import Developer
from ostinato.loop.team.file import Team

LATE_S = 1200.0
SUPERVISOR = "team up"
VICTIMS = {
    "gateway": "--table gateway",
    "engine server": "--table serve-engine",
    "dashboard": "ostinato dashboard",
    "cycle": "ostinato run",
    SUPERVISOR: SUPERVISOR,
}
"""What is killed, and the words of its command line."""


class Supervised:
    """`ostinato team up` by the Python that has it; it is started again when it ends, as by systemd."""

    def __init__(self, team: Team, python: str) -> None:
        self._command = [python, "-m", "ostinato", "team", "up", "--file", str(team.file)]
        self._log = team.run.directory / "up.log"
        self._process: Process | None = None
        self.ready = asyncio.Event()

    async def keep(self) -> None:
        while True:
            with self._log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command, stdin=DEVNULL, stdout=PIPE, stderr=log
                )
            assert self._process.stdout is not None
            try:
                async for line in self._process.stdout:
                    if line.startswith(b"dashboard"):
                        self.ready.set()
                await self._process.wait()
            finally:
                if self._process.returncode is None:
                    self._process.terminate()
                    await self._process.communicate()
            await asyncio.sleep(0.1)

    def pid(self, victim: str) -> int | None:
        """Return a process of this kind that is running now."""
        if self._process is None or self._process.returncode is not None:
            return None
        if victim == SUPERVISOR:
            return self._process.pid
        return next(_children(self._process.pid, VICTIMS[victim]), None)


def _children(parent: int, words: str) -> Iterator[int]:
    for listed in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(OSError):  # one ended meanwhile
            for pid in listed.read_text().split():
                if words in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "):
                    yield int(pid)


async def until(true: Callable[[], bool], tasks: Sequence[asyncio.Task[None]], what: str) -> None:
    """Wait for something; raise TimeoutError, or what ended one of the tasks, which go on for ever."""
    end = time.monotonic() + LATE_S
    while not true():
        for task in tasks:
            if task.done():
                task.result()
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {LATE_S:.0f} s")
        await asyncio.sleep(0.02)


async def answers(url: str) -> None:
    """Wait until something responds at an address."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as http:
        while True:
            with suppress(aiohttp.ClientError, TimeoutError):
                async with http.get(url, allow_redirects=False):
                    return
            await asyncio.sleep(0.05)


async def killed(
    up: Supervised,
    team: Team,
    people: Sequence[Developer],
    tasks: Sequence[asyncio.Task[None]],
    *,
    kills: int,
    minutes: float,
) -> Mapping[str, list[float]]:
    """Kill one process after another; return the seconds until people were served again, by what was killed.

    Of a dashboard they are the seconds until it answers. The first kill after so many minutes is not made.
    """

    async def served_after(moment: float) -> float:
        def all_are() -> bool:
            return all(each.served_after(moment) is not None for each in people)

        await until(all_are, tasks, "an answer")
        return max(each.served_after(moment) or 0.0 for each in people)

    found, rng, end = defaultdict[str, list[float]](list), Random(kills), time.monotonic() + 60 * minutes
    while sum(map(len, found.values())) - len(found["null"]) < kills and time.monotonic() < end:
        await asyncio.sleep(rng.random() * 3)
        victim = min((n for n in VICTIMS if up.pid(n)), key=lambda name: len(found[name]), default="")
        pid, moment = up.pid(victim) if victim else None, time.monotonic()
        if pid is None:
            continue
        if len(found["null"]) < len(found[SUPERVISOR]):
            found["null"].append(await served_after(moment))
            continue
        os.kill(pid, signal.SIGKILL)
        took = await served_after(moment)
        if victim == "dashboard":
            await answers(team.dashboard)
            took = time.monotonic() - moment
        found[victim].append(took)
    return found


def lost(team: Team, people: Sequence[Developer]) -> list[tuple[str, int]]:
    """Return the acknowledged turns that the record has not, or not once, and those acknowledged twice."""
    turns = Counter(turn for each in people for turn in each.turns)
    with closing(team.open_store()) as store:
        names = sorted({session for session, _ in turns})
        recorded = Counter((id_, turn.index) for id_, some in store.turns_of(names).items() for turn in some)
    return [turn for turn, count in turns.items() if count != 1 or recorded[turn] != 1]
