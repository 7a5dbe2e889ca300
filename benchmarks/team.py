"""A team before an engine that is there: from `team init` to a promoted version, then kill after kill.

::

    init ─► up ─► add ─► join ─► a recorded session ─► twenty developers ─► trained, gated, promoted
                                                             └► kill -9 of each process under their traffic

Every step is a command of docs/team.md, in a process of its own. The engine has random weights, behind a little
server with vLLM's routes or a real vLLM (`--vllm`). The developers are scripts that ask over HTTP and keep the
answers in which a letter comes twice; what they keep is all that training sees. An attribution window lasts two
seconds instead of an hour, and a session is dealt to an arm, since nobody here works for blocks of hours.

A turn is acknowledged when its whole answer has arrived. People are served again when each developer has the
answer to a question that was asked after the kill; the null is the same at moments without one.
"""

import argparse
import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
from fuzz.foreign import checkpoint
from fuzz.people import Developer

from benchmarks.measure import Run, children_of, quantile
from ostinato.config import dump, load
from ostinato.loop.config import RunConfig
from ostinato.loop.live_config import CHAMPION
from ostinato.loop.team.file import Team, open_team
from ostinato.types import Source

ROOT = Path(__file__).resolve().parents[1]
CONTEXT, WINDOW_S, LATE_S = 3072, 2.0, 1200.0
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
"""What a team of minutes with a tiny model changes in the file that `team init` wrote."""
REWARD = f"""\
name = "letters"
train_after_s = {WINDOW_S}
background_after_s = {WINDOW_S}
[parts.kept]
weight = 1.0
[parts.reverted]
weight = -1.0
"""
SUPERVISOR = "team up"
VICTIMS = {
    "gateway": "--table gateway",
    "engine server": "--table serve-engine",
    "dashboard": "ostinato dashboard",
    "cycle": "ostinato run",
    SUPERVISOR: "team up",
}
"""What is killed, and the words of its command line."""


@dataclass(slots=True, kw_only=True)
class Place:
    """Where the team lives, the Python that has ostinato, and the commands that people typed so far."""

    folder: Path
    python: str = sys.executable
    typed: list[str] = field(default_factory=list)

    def ostinato(self, *words: str) -> list[str]:
        return [self.python, "-m", "ostinato", *words]

    def at_home(self, name: str) -> Mapping[str, str]:
        home = self.folder / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        return {**os.environ, "HOME": str(home)}

    async def run(self, *words: str, name: str = "operator", cwd: Path | None = None) -> list[str]:
        """Run one command of a person to its end; return the lines that it printed."""
        self.typed.append(f"ostinato {' '.join(words)}")
        command = self.ostinato(*words)
        process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=self.at_home(name), cwd=cwd
        )
        out, error = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"{self.typed[-1]} ended with {process.returncode}: {error.decode()[-2000:]}")
        return out.decode().splitlines()

    def install(self) -> None:
        """Install ostinato from this clone into an environment of its own."""
        home = self.folder / "environment"
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        self.python = str(home / "bin" / "python")
        words = ["install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), f"{ROOT}[demo,hf]"]
        subprocess.run([self.python, "-m", "pip", *words], check=True)
        self.typed.append("pip install ostinato[demo,hf]")


class Supervised:
    """`ostinato team up`, which is started again whenever it ends, as systemd does."""

    def __init__(self, place: Place, team: Team) -> None:
        self._place, self._team = place, team
        self._process: Process | None = None
        self.ready = asyncio.Event()

    async def keep(self) -> None:
        words = self._place.ostinato("team", "up", "--file", str(self._team.file))
        while True:
            with (self._team.run.directory / "up.log").open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *words, stdin=DEVNULL, stdout=PIPE, stderr=log
                )
            try:
                assert self._process.stdout is not None
                async for line in self._process.stdout:
                    if line.startswith(b"dashboard"):
                        self.ready.set()
                await self._process.wait()
            except asyncio.CancelledError:
                with suppress(ProcessLookupError):
                    self._process.terminate()
                await self._process.communicate()
                raise
            await asyncio.sleep(0.1)

    def pid(self, victim: str) -> int | None:
        """Return a process of this kind that is running now."""
        if self._process is None or self._process.returncode is not None:
            return None
        if victim == SUPERVISOR:
            return self._process.pid
        for pid in children_of(self._process.pid):
            with suppress(OSError):  # it ended meanwhile
                if VICTIMS[victim] in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "):
                    return pid
        return None


def free_port() -> int:
    """Return a port that is free, as the one after it is."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one, suppress(OSError):
            port = int(one.getsockname()[1])
            socket.create_server(("127.0.0.1", port + 1)).close()
            return port


@asynccontextmanager
async def engine(folder: Path, vllm: str | None) -> AsyncIterator[tuple[str, Path]]:
    """Start a server of a tiny model, with the Python that has vLLM if one is named."""
    model = checkpoint(folder / "tiny", "Qwen3", initializer_range=0.2, head_dim=32)
    port, more = free_port(), {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "true", "VLLM_CPU_KVCACHE_SPACE": "1"}
    words = [sys.executable, "-m", "fuzz.little_vllm", str(model), str(CONTEXT), str(port)]
    if vllm is not None:
        words = [vllm, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(port)]
        words += ["--dtype", "float32", "--enforce-eager", "--max-model-len", str(CONTEXT)]
        words += ["--logprobs-mode", "processed_logprobs", "--host", "127.0.0.1"]
        words += ["--enable-lora", "--max-lora-rank", "8", "--max-loras", "4"]
        more |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}
    with (folder / "engine.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *words, cwd=ROOT, stdout=log, stderr=log, env={**os.environ, **more}
        )
    try:
        await answers(f"http://127.0.0.1:{port}/v1/models", process)
        yield f"http://127.0.0.1:{port}", model
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def answers(url: str, process: Process | None = None) -> None:
    """Wait until something responds at an address, as long as the process runs."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as http:
        while process is None or process.returncode is None:
            with suppress(aiohttp.ClientError, TimeoutError):
                async with http.get(url, allow_redirects=False):
                    return
            await asyncio.sleep(0.05)
    raise RuntimeError(f"the engine ended with status {process.returncode}")


async def until(true: Callable[[], bool], working: list[asyncio.Task[None]], what: str) -> None:
    """Wait for something; raises TimeoutError, or what ended the work of a developer or of `team up`."""
    end = time.monotonic() + LATE_S
    while not true():
        for task in working:
            if task.done():
                task.result()
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {LATE_S:.0f} s")
        await asyncio.sleep(0.02)


async def begun(
    place: Place, url: str, model: Path, people: int, tasks: list[asyncio.Task[None]]
) -> tuple[Team, Supervised, list[Developer], float]:
    """Go from `team init` to the first recorded session; return the team, its people, and the minutes."""
    began, file = time.monotonic(), place.folder / "team.toml"
    address = f"http://127.0.0.1:{free_port()}"
    where = ("--engine", url, "--model", str(model), "--address", address)
    await place.run("team", "init", *where, "--people", str(people), "--file", str(file))
    (place.folder / "reward.toml").write_text(REWARD)
    settings = [*SETTINGS, f"live.reward={place.folder / 'reward.toml'}"]
    file.write_text(dump(load(RunConfig, file, settings)))
    team = open_team(file)
    up = Supervised(place, team)
    place.typed.append("ostinato team up")
    tasks.append(asyncio.create_task(up.keep()))
    await until(up.ready.is_set, tasks, "team up")
    names = [f"dev{number:02d}" for number in range(people)]
    lines = await place.run("team", "add", *names, "--file", str(file))
    codes = {
        a.removesuffix(":"): b.split()[-1] for a, b in zip(lines, lines[1:], strict=False) if a.endswith(":")
    }
    await place.run("join", address, codes[names[0]], "--consent", "yes", name=names[0])
    repo = place.folder / "repository"
    repo.mkdir()
    (repo / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    git = ["git", "-c", "user.name=ada", "-c", "user.email=ada@example"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "begin"]):
        subprocess.run([*git, *words], cwd=repo, check=True)
    await place.run("code", "--plain", "--auto", "add in calc.py subtracts", name=names[0], cwd=repo)
    with closing(team.open_store()) as store:
        sessions = [each for each in store.sessions(source=Source.LIVE) if store.turns(each.id)]
    assert [each.user for each in sessions] == [names[0]], sessions
    minutes, commands = (time.monotonic() - began) / 60, list(place.typed)
    for name in names[1:]:
        await place.run("join", address, codes[name], "--consent", "yes", name=name)
    place.typed[:] = commands
    homes = place.folder / "homes"
    return team, up, [Developer(name=n, home=homes / n, url=address, rng=Random(n)) for n in names], minutes


async def promoted(team: Team, people: list[Developer], tasks: list[asyncio.Task[None]]) -> dict[str, Any]:
    """Let the developers work until a trained version serves them all; return what came of it."""
    began = time.monotonic()
    with closing(team.open_store()) as store:

        def is_served() -> bool:
            champion = next(arm for arm in store.arms() if arm.name == CHAMPION)
            return champion.version > 0 and champion.share == 1.0

        await until(is_served, tasks, "a promotion")
        champion = next(arm for arm in store.arms() if arm.name == CHAMPION)
        verdicts = [
            f"{v.decision.value}: {v.reason.splitlines()[0]}" for v in store.verdicts(champion.version)
        ]
    kept = sum((each.kept for each in people), Counter[tuple[int, bool]]())
    share = {v: round(kept[v, True] / (kept[v, True] + kept[v, False]), 3) for v in (0, champion.version)}
    minutes = (time.monotonic() - began) / 60
    return {
        "promoted": champion.version,
        "minutes_to_promotion": minutes,
        "kept": share,
        "verdicts": verdicts,
    }


async def served_again(people: list[Developer], moment: float, tasks: list[asyncio.Task[None]]) -> float:
    """Return the seconds until each developer has the answer to a question of after this moment."""
    await until(lambda: all(each.served_after(moment) is not None for each in people), tasks, "an answer")
    return max(each.served_after(moment) or 0.0 for each in people)


async def killed(
    up: Supervised,
    team: Team,
    people: list[Developer],
    tasks: list[asyncio.Task[None]],
    kills: int,
    rng: Random,
) -> dict[str, list[float]]:
    """Kill what runs, one process after another; return the seconds until people were served again."""
    found: dict[str, list[float]] = {"null": []}
    for number in range(kills):
        await asyncio.sleep(rng.random() * 3)
        if number % 5 == 0:
            found["null"].append(await served_again(people, time.monotonic(), tasks))
        names = [name for name in VICTIMS if up.pid(name)]
        victim = min(names, key=lambda name: (len(found.get(name, ())), rng.random()))
        if (pid := up.pid(victim)) is None:
            continue
        moment = time.monotonic()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        took = await served_again(people, moment, tasks)
        if victim == "dashboard":
            await answers(team.dashboard)
            took = time.monotonic() - moment
        found.setdefault(victim, []).append(took)
    return found


def lost(team: Team, people: list[Developer]) -> list[tuple[str, int]]:
    """Return the acknowledged turns that the record has not, or not once."""
    with closing(team.open_store()) as store:
        acknowledged = [turn for each in people for turn in each.turns]
        names = sorted({session for session, _ in acknowledged})
        recorded = Counter(
            (id_, turn.index) for id_, turns in store.turns_of(names).items() for turn in turns
        )
    twice = [turn for turn, count in Counter(acknowledged).items() if count > 1]
    return [*twice, *(turn for turn in acknowledged if recorded[turn] != 1)]


async def measured(options: argparse.Namespace, place: Place) -> dict[str, Any]:
    tasks: list[asyncio.Task[None]] = []
    if options.install:
        place.install()
    try:
        async with engine(place.folder, options.vllm) as (url, model):
            team, up, people, minutes = await begun(place, url, model, options.people, tasks)
            tasks += [asyncio.create_task(each.work()) for each in people]
            came = await promoted(team, people, tasks)
            again = await killed(up, team, people, tasks, options.kills, Random(options.seed))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    every = [seconds for victim, some in again.items() for seconds in some if victim != "null"]
    return {
        "minutes_to_first_session": minutes,
        "commands": len(place.typed),
        **came,
        "kills": {victim: len(some) for victim, some in again.items()},
        "served_again_p50_s": quantile(every).value if every else None,
        "served_again_max_s": {victim: max(some) for victim, some in again.items() if some},
        "lost": len(lost(team, people)),
        "people": len(people),
        "acknowledged": sum(len(each.turns) for each in people),
        "failed": dict(sum((each.failed for each in people), Counter[str]())),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.team", description=__doc__)
    parser.add_argument("--people", type=int, default=20)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vllm", metavar="PYTHON", help="the interpreter that has vLLM")
    parser.add_argument("--install", action="store_true", help="install ostinato first, and count that too")
    parser.add_argument("--directory", type=Path, help="a new folder that is kept, with all logs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = options.directory or Path(tempfile.mkdtemp(prefix="team-"))
    folder.mkdir(parents=True, exist_ok=True)
    with Run("team", "torch", "transformers") as run:
        figures = asyncio.run(measured(options, Place(folder=folder.resolve())))
        for name, value in figures.items():
            print(f"{name}: {value}")
        run.finish(figures, as_json=options.json)
    if options.directory is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
