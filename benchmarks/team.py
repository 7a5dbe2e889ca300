"""A team before an engine that is there: from `team init` to a promoted version, then kill after kill.

::

    init ─► up ─► add ─► join ─► a recorded session ─► twenty developers ─► trained, gated, promoted
                                                             └► kill -9 of each process under their traffic

Every step is a command of docs/team.md, in a process of its own. The engine has random weights, behind a
small server with vLLM's routes, or a real vLLM (`--vllm`). The developers are scripts (`fuzz/people.py`)
whose choice of answers is all that training sees. An attribution window lasts two seconds instead of an hour,
and sessions are dealt to the arms, since nobody here works for blocks of hours.
"""

import argparse
import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random, randrange
from typing import Any

from fuzz.foreign import checkpoint
from fuzz.people import Developer
from fuzz.team_kills import Supervised, answers, killed, lost, until

from benchmarks.measure import Run, quantile
from ostinato.config import dump, load
from ostinato.loop.config import CAN_DIFFER, FidelityConfig, RunConfig
from ostinato.loop.live_config import CHAMPION
from ostinato.loop.team.file import Team, open_team
from ostinato.types import Decision, Source

ROOT = Path(__file__).resolve().parents[1]
CONTEXT, WINDOW_S = 3072, 2.0
SETTINGS = (
    "sandbox.backend=process",
    "harness.profile=short",
    "harness.max_context=2048",
    "harness.max_turns=1",
    "harness.max_tokens=4",
    "trainer.lora_rank=4",
    "live.sessions=1600",
    "live.ab_sessions=2400",
    "live.assign=session",
    "live.versions=8",
    "live.learning_rate=0.03",
    "live.shadow_requests=10",
    "bench.at_once=16",
    "schedule.every_s=600",
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
Tasks = list[asyncio.Task[None]]


@dataclass(slots=True, kw_only=True)
class Place:
    """Where the team lives, the Python that has ostinato, and the commands that were typed so far."""

    folder: Path
    python: str = sys.executable
    typed: list[str] = field(default_factory=list)

    def home(self, name: str) -> Path:
        home = self.folder / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        return home

    async def run(
        self, *words: str, name: str = "operator", cwd: Path | None = None, may: tuple[int, ...] = (0,)
    ) -> list[str]:
        """Run one command of a person to its end, with one of these statuses; return what it printed."""
        self.typed.append(f"ostinato {' '.join(words)}")
        environment = {**os.environ, "HOME": str(self.home(name))}
        command = [self.python, "-m", "ostinato", *words]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=environment, cwd=cwd
        )
        out, error = await process.communicate()
        if process.returncode not in may:
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

    def repository(self) -> Path:
        """Return a git repository with one wrong line."""
        repo = self.folder / "repository"
        repo.mkdir()
        (repo / "calc.py").write_text("def add(a, b):\n    return a - b\n")
        git = ["git", "-c", "user.name=ada", "-c", "user.email=ada@example.org"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "begin"]):
            subprocess.run([*git, *words], cwd=repo, check=True)
        return repo


def free_port() -> int:
    """Return a port that is free, as the one after it is.

    The kernel gives none of these to clients: a connection of theirs would keep a server that comes back from
    its own port, and one to a server that is away could even meet itself there.
    """
    least = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = randrange(least // 2, least - 1)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            socket.create_server(("127.0.0.1", port + 1)).close()
            return port


@asynccontextmanager
async def engine(folder: Path, vllm: str | None) -> AsyncIterator[tuple[str, Path]]:
    """Start a server of a tiny model, with the Python that has vLLM if one is named."""
    model = checkpoint(folder / "tiny", "Qwen3", initializer_range=0.2, head_dim=32)
    port, environment = free_port(), dict(os.environ)
    words = [sys.executable, "-m", "fuzz.little_vllm", str(model), str(CONTEXT), str(port)]
    if vllm is not None:
        words = [vllm, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(port)]
        words += ["--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager"]
        words += ["--max-model-len", str(CONTEXT), "--logprobs-mode", "processed_logprobs"]
        words += ["--enable-lora", "--max-lora-rank", "8", "--max-loras", "4"]
        environment |= {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "true", "VLLM_CPU_KVCACHE_SPACE": "1"}
        environment |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}
    with (folder / "engine.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *words, cwd=ROOT, stdin=DEVNULL, stdout=log, stderr=log, env=environment
        )
    ended = asyncio.create_task(process.wait())
    try:
        ready = asyncio.create_task(answers(f"http://127.0.0.1:{port}/v1/models"))
        await asyncio.wait([ready, ended], return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            raise RuntimeError(f"the engine ended with status {ended.result()}: {folder / 'engine.log'}")
        yield f"http://127.0.0.1:{port}", model
    finally:
        if not ended.done():
            process.terminate()
        await ended


async def team_up(place: Place, url: str, model: Path, people: int, tasks: Tasks) -> tuple[Team, Supervised]:
    """Go from `team init` to `team up`, with the settings of a tiny model in between."""
    file, address = place.folder / "team.toml", f"http://127.0.0.1:{free_port()}"
    where = ("--engine", url, "--model", str(model), "--address", address, "--file", str(file))
    await place.run("team", "init", *where, "--people", str(people))
    (place.folder / "reward.toml").write_text(REWARD)
    settings = [*SETTINGS, f"live.reward={place.folder / 'reward.toml'}"]
    scripts = FidelityConfig(wanted=dict.fromkeys(sorted(CAN_DIFFER), "the developers are scripts"))
    file.write_text(dump(replace(load(RunConfig, file, settings), fidelity=scripts)))
    team = open_team(file)
    up = Supervised(team, place.python)
    place.typed.append("ostinato team up")
    tasks.append(asyncio.create_task(up.keep()))
    await until(up.ready.is_set, tasks, "team up")
    return team, up


async def invited(place: Place, team: Team, names: Sequence[str]) -> dict[str, str]:
    """Return the join code of each person."""
    lines = await place.run("team", "add", *names, "--file", str(team.file))
    whose = {f"{name}:": name for name in names}
    return {whose[a]: b.split()[-1] for a, b in pairwise(lines) if a in whose}


async def first_session(place: Place, team: Team, name: str, code: str) -> None:
    """Let one person join, and bring a task to the agent; their session is in the record then.

    Random weights may break their reply, which ends the session with status 1.
    """
    await place.run("join", team.address, code, "--consent", "yes", name=name)
    repo = await asyncio.to_thread(place.repository)
    words = ("code", "--plain", "--auto", "add in calc.py subtracts")
    await place.run(*words, name=name, cwd=repo, may=(0, 1))
    with closing(team.open_store()) as store:
        users = [each.user for each in store.sessions(source=Source.LIVE) if store.turns(each.id)]
    if users != [name]:
        raise RuntimeError(f"the record has sessions of {users}, not one of {name}")


async def promoted(team: Team, people: Sequence[Developer], tasks: Tasks) -> dict[str, Any]:
    """Wait until a trained version serves everybody; return what came of it."""
    began = time.monotonic()
    with closing(team.open_store()) as store:

        def version() -> int:
            champion = next(arm for arm in store.arms() if arm.name == CHAMPION)
            return champion.version if champion.share == 1.0 else 0

        await until(lambda: version() > 0, tasks, "a promotion")
        served = version()
        await until(lambda: any(v.decision is Decision.PROMOTE for v in store.verdicts(served)), tasks, "why")
        said = [f"{v.decision.value}: {v.reason.splitlines()[0]}" for v in store.verdicts(served)]
    kept = sum((each.kept for each in people), Counter[tuple[int, bool]]())
    share = {v: kept[v, True] / (kept[v, True] + kept[v, False]) for v in (0, served)}
    minutes = (time.monotonic() - began) / 60
    return {"promoted": served, "minutes_to_promotion": minutes, "kept": share, "verdicts": said}


async def measured(place: Place, options: argparse.Namespace) -> dict[str, Any]:
    began, tasks = time.monotonic(), Tasks()
    if options.install:
        place.install()
    try:
        async with engine(place.folder, options.vllm) as (url, model):
            if not options.install:
                began = time.monotonic()
            team, up = await team_up(place, url, model, options.people, tasks)
            names = [f"dev{number:02d}" for number in range(options.people)]
            codes = await invited(place, team, names)
            await first_session(place, team, names[0], codes[names[0]])
            minutes, commands = (time.monotonic() - began) / 60, len(place.typed)
            for name in names[1:]:
                await place.run("join", team.address, codes[name], "--consent", "yes", name=name)
            people = [
                Developer(name=name, home=place.home(name), url=team.address, rng=Random(name))
                for name in names
            ]
            tasks += [asyncio.create_task(each.work()) for each in people]
            came = await promoted(team, people, tasks)
            again = await killed(up, team, people, tasks, kills=options.kills, minutes=options.minutes)
            found = lost(team, people)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    every = [seconds for victim, some in again.items() for seconds in some if victim != "null"]
    return {
        "minutes_to_first_session": minutes,
        "commands": commands,
        **came,
        "kills": {victim: len(some) for victim, some in again.items()},
        "lost": len(found),
        "served_again_s": quantile(every).value if every else None,
        "served_again_p50_s": {victim: quantile(some).value for victim, some in again.items() if some},
        "served_again_max_s": {victim: max(some) for victim, some in again.items() if some},
        "people": len(people),
        "acknowledged": sum(len(each.turns) for each in people),
        "failed_requests": dict(sum((each.failed for each in people), Counter[str]())),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.team", description=__doc__)
    parser.add_argument("--people", type=int, default=20)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=15.0, help="after which no further kill is made")
    parser.add_argument("--vllm", metavar="PYTHON", help="the interpreter that has vLLM")
    parser.add_argument("--install", action="store_true", help="install ostinato first, which counts too")
    parser.add_argument("--directory", type=Path, help="a new folder that is kept, with all logs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = options.directory or Path(tempfile.mkdtemp(prefix="team-"))
    folder.mkdir(parents=True, exist_ok=True)
    with Run("team", "torch", "transformers") as run:
        figures = asyncio.run(measured(Place(folder=folder.resolve()), options))
        for name, value in figures.items():
            print(f"{name}: {value}")
        run.finish(figures, as_json=options.json)
    if options.directory is None:
        shutil.rmtree(folder)
    return 1 if figures["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
