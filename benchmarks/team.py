"""A team before an engine that is there: from `team init` to a promoted version, then kill after kill.

::

    init ─► up ─► add ─► join ─► a recorded session ─► twenty scripted developers ─► trained, gated, promoted
                                                                    └► kill -9 of each process under their traffic

Every step is a command as docs/team.md has it, in processes of their own. The engine is a little vLLM with
random weights, or a real one (`--vllm`). The developers ask by HTTP, and keep an answer with two of their
letters in it; their choice is all that training sees. Windows of hours are seconds here.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
from fuzz.foreign import checkpoint

from benchmarks.measure import Run, quantile, table
from ostinato.config import dump, load
from ostinato.loop.config import RunConfig
from ostinato.loop.team.file import Team, open_team
from ostinato.store import Store
from ostinato.types import SignalKind, Source

CONTEXT, WINDOW_S = 3072, 2.0
SETTINGS = (
    "sandbox.backend=process",
    "harness.profile=short",
    "harness.max_context=2048",
    "harness.max_turns=1",
    "harness.max_tokens=4",
    "trainer.lora_rank=4",
    "live.sessions=400",
    "live.ab_sessions=1200",
    "live.assign=session",
    "live.versions=8",
    "live.learning_rate=0.02",
    "live.shadow_requests=10",
    "bench.at_once=16",
    "schedule.every_s=7200",
)
REWARD = f"""\
name = "letters"
train_after_s = {WINDOW_S}
background_after_s = {WINDOW_S}
[parts.kept]
weight = 1.0
[parts.reverted]
weight = -1.0
[outcomes]
returned = {{ after_s = 691200.0 }}
"""
LIKED = "e"
VICTIMS = {
    "gateway": "--table gateway",
    "engine": "--table serve-engine",
    "dashboard": "ostinato dashboard",
    "cycle": "ostinato run",
    "team up": "team up",
}
LATE_S = 300.0


@dataclass(slots=True, kw_only=True)
class Developer:
    """One person's machine and what was answered there: the session, the moment of the question and of the
    answer, and the version."""

    name: str
    home: Path
    url: str
    rng: Random
    answers: list[tuple[str, float, float, int]] = field(default_factory=list)
    liked: list[tuple[int, bool]] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)

    async def work(self, pause_s: float) -> None:
        """Ask on and on; ask again where no whole answer came."""
        key = next(
            line.split('"')[1]
            for line in (self.home / ".config/ostinato/gateway.toml").read_text().splitlines()
            if line.startswith("key")
        )
        headers = {"Authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=60)) as http:
            for number in range(1_000_000):
                session = f"{self.name}-{number}"
                while (said := await self._asked(http, session)) is None:
                    await asyncio.sleep(0.1)
                await self._judge(http, session, *said)
                await asyncio.sleep(self.rng.random() * pause_s)

    async def _asked(self, http: aiohttp.ClientSession, session: str) -> tuple[int, str] | None:
        asked_at = time.monotonic()
        messages = [{"role": "user", "content": f"what next, {self.name}?"}]
        body = {"model": "ostinato", "messages": messages, "max_tokens": 6, "temperature": 1.0}
        url, headers = f"{self.url}/v1/chat/completions", {"X-Session-Id": session}
        try:
            async with http.post(url, json=body, headers=headers) as response:
                said = await response.json()
                if response.status != 200:
                    self.failed[str(said)[:120]] += 1
                    return None
                version = int(response.headers["x-ostinato-version"])
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            self.failed[type(error).__name__] += 1
            return None
        self.answers.append((session, asked_at, time.monotonic(), version))
        return version, said["choices"][0]["message"]["content"] or ""

    async def _judge(self, http: aiohttp.ClientSession, session: str, version: int, text: str) -> None:
        liked = text.count(LIKED) >= 2
        self.liked.append((version, liked))
        kind = SignalKind.EDIT_KEPT if liked else SignalKind.EDIT_REVERTED
        facts: list[tuple[SignalKind, float | str]] = [(kind, 1.0), (SignalKind.ENDING, "finished")]
        for fact, value in facts:
            body = {"session_id": session, "kind": fact.value, "value": value, "observed_at": time.time()}
            while True:
                with suppress(aiohttp.ClientError, TimeoutError):
                    async with http.post(f"{self.url}/feedback", json=body) as response:
                        if response.status < 300:
                            break
                        self.failed[(await response.text())[:120]] += 1
                await asyncio.sleep(0.1)


class Supervised:
    """`ostinato team up`, started again whenever it ends, as systemd does."""

    def __init__(self, team: Team) -> None:
        self._team = team
        self.process: asyncio.subprocess.Process | None = None
        self.ready = asyncio.Event()

    async def keep(self) -> None:
        while True:
            words = ostinato("team", "up", "--file", str(self._team.file))
            log = (self._team.run.directory / "up.log").open("ab")
            self.process = await asyncio.create_subprocess_exec(
                *words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
            log.close()
            assert self.process.stdout is not None
            async for line in self.process.stdout:
                log_line(line.decode().rstrip())
                if line.startswith(b"dashboard"):
                    self.ready.set()
            await self.process.wait()
            await asyncio.sleep(1.0)

    def pid(self, victim: str) -> int | None:
        """Return the process of a part of it that is running now."""
        if self.process is None or self.process.returncode is not None:
            return None
        if victim == "team up":
            return self.process.pid
        return next((pid for pid in below(self.process.pid) if VICTIMS[victim] in words_of(pid)), None)


def log_line(text: str) -> None:
    print(f"{time.monotonic() - BEGAN:7.1f} s  {text}", file=sys.stderr, flush=True)


BEGAN = time.monotonic()


def below(pid: int) -> list[int]:
    """Return the processes that one has started."""
    found = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it ended meanwhile
            found += [int(child) for child in listed.read_text().split()]
    return found


def words_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def ostinato(*words: str) -> list[str]:
    return [sys.executable, "-m", "ostinato", *words]


def command(*words: str, **more: Any) -> str:
    done = subprocess.run(ostinato(*words), check=True, capture_output=True, text=True, **more)
    log_line("ostinato " + " ".join(words[:2]))
    return done.stdout


def home(name: str, folder: Path) -> Mapping[str, str]:
    place = folder / "homes" / name
    place.mkdir(parents=True, exist_ok=True)
    return {**os.environ, "HOME": str(place)}


def free_port() -> int:
    """Return a port that is free, as the next one is."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = int(one.getsockname()[1])
            with suppress(OSError), socket.create_server(("127.0.0.1", port + 1)):
                return port


@asynccontextmanager
async def little(folder: Path) -> AsyncIterator[tuple[str, Path]]:
    model, port = checkpoint(folder / "tiny", "Qwen3", 0.2), free_port()
    words = [sys.executable, "-m", "fuzz.little_vllm", str(model), str(CONTEXT), str(port)]
    process = await asyncio.create_subprocess_exec(*words)
    try:
        yield f"http://127.0.0.1:{port}", model
    finally:
        process.kill()
        await process.wait()


async def first_session(folder: Path, url: str, model: Path, people: int) -> tuple[Team, list[Developer]]:
    file, address = folder / "team.toml", f"http://127.0.0.1:{free_port()}"
    command("team", "init", "--engine", url, "--model", str(model), "--address", address, "--people", str(people), "--file", str(file))
    (folder / "reward.toml").write_text(REWARD)
    more = f"live.reward={folder / 'reward.toml'}"
    file.write_text(dump(load(RunConfig, file, [*SETTINGS, more])))
    return open_team(file), []


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.team", description=__doc__)
    parser.add_argument("--people", type=int, default=20)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = options.directory or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        url, model = await stack.enter_async_context(little(folder))
        await asyncio.sleep(5)
        log_line(url)
        team, _ = await first_session(folder, url, model, options.people)
        up = Supervised(team)
        keeping = asyncio.create_task(up.keep())
        await up.ready.wait()
        names = [f"dev{n:02d}" for n in range(options.people)]
        lines = command("team", "add", *names, "--file", str(team.file)).splitlines()
        people = []
        for name in names:
            code = next(b.split()[-1] for a, b in zip(lines, lines[1:]) if a == f"{name}:")
            command("join", team.address, code, "--consent", "yes", env=home(name, folder))
            people.append(Developer(name=name, home=folder / "homes" / name, url=team.address, rng=Random(name)))
        working = [asyncio.create_task(each.work(0.5)) for each in people]
        for n in range(100):
            await asyncio.sleep(5)
            for w in working:
                if w.done(): await w
            byv = Counter()
            good = Counter()
            for each in people:
                for v, l in each.liked:
                    byv[v] += 1; good[v] += l
            log_line(f"{sum(len(e.answers) for e in people)} {[(v, byv[v], round(good[v]/byv[v],2)) for v in sorted(byv)]} {sum((e.failed for e in people), Counter())}")
            if n % 4 == 0:
                log_line(subprocess.run(["tail","-n","3",str(team.front/"logs"/"cycle.log")],capture_output=True,text=True).stdout)
        up.process.kill()


if __name__ == "__main__":
    asyncio.run(main())
