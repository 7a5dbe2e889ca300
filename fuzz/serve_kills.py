"""Kills of a whole `ostinato serve` under the traffic of recorded sessions, and what must be as without them.

    clients ──turns of sessions──► gateway ──► engine        a kill of one of the three, at any moment
       └─what was acknowledged         └── both are children of `serve`, which starts them again

A turn is acknowledged when its whole answer has arrived. Then it is in the record, once. A killed `serve` is
started again as a person would, in the same folder and on the same port.

    python -m fuzz.serve_kills --kills 100 --seed 1 --directory DIR
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import aiohttp

from ostinato.loop.config import RunConfig
from ostinato.loop.folder import open_run, owned
from ostinato.loop.run import START, Run
from ostinato.loop.stages.prepare import prepare
from ostinato.sandbox.config import SandboxConfig
from ostinato.store.accounts import hash_key
from ostinato.sync import Publisher
from ostinato.types import Arm

DEPLOYED = Arm(name="champion", version=0, share=1.0, engines=("http://127.0.0.1:9",))
SERVICES = {"gateway": "ostinato.gateway.server", "engine": "ostinato.engine.server"}
VICTIMS = (*SERVICES, "serve")
KEY = "the-key-of-a-client"
LATE_S = 300.0


async def deployed(directory: Path) -> Run:
    """Return a run with a tiny model that has been deployed once."""
    import torch

    from ostinato.model.checkpoint import load

    config = RunConfig(sandbox=SandboxConfig(backend="process"))
    shape = replace(config.model.shape, hidden_size=16, heads=1, kv_heads=1, head_dim=8)
    config = replace(config, model=replace(config.model, shape=shape))
    with owned(directory, "demo") as owner:
        run = open_run(owner, config, fresh=False).run
    await prepare(config, run)
    torch.manual_seed(0)
    Publisher(run.open_objects()).anchor(0, load(run.checkpoint(START))[0].state_dict())
    run.open_store().set_arms([DEPLOYED])
    return run


async def serve(run: Run, port: int) -> Process:
    """Start `ostinato serve`."""
    command = ("-m", "ostinato.cli", "serve", "--directory", str(run.directory), "--port", str(port))
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=env
    )


@dataclass(slots=True, kw_only=True)
class Survived:
    """What a run with kills came to."""

    kills: Counter[str] = field(default_factory=Counter)
    acknowledged: list[tuple[str, int]] = field(default_factory=list)
    failed: int = 0
    """Requests that no whole answer came to."""
    starts: int = 0
    """How often `serve` was started; more than the kills of it where it gave up or its port was taken."""

    def faults(self, run: Run) -> list[str]:
        """Return a sentence for each acknowledged turn that the record has not, or not once."""
        store = run.open_store()
        recorded: Counter[tuple[str, int]] = Counter()
        for session in {name for name, _ in self.acknowledged}:
            recorded.update((session, turn.index) for turn in store.turns(session))
        twice = [key for key, count in Counter(self.acknowledged).items() if count > 1]
        return [
            *(f"{key} was acknowledged twice" for key in twice),
            *(
                f"{key} is {recorded[key]} times in the record"
                for key in self.acknowledged
                if recorded[key] != 1
            ),
        ]


class _Served:
    """A `serve` that is started again whenever it ends."""

    def __init__(self, run: Run, found: Survived) -> None:
        self._run, self._found = run, found
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.process: Process | None = None
        self._kept: asyncio.Task[None] | None = None

    async def keep(self) -> None:
        while True:
            self.process = await serve(self._run, self.port)
            self._found.starts += 1
            await self.process.communicate()

    def pid(self, victim: str) -> int | None:
        """Return the process of a part of it that is running now."""
        if self.process is None or self.process.returncode is not None:
            return None
        if victim == "serve":
            return self.process.pid
        for child in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            for pid in child.read_text().split():
                try:
                    words = Path(f"/proc/{pid}/cmdline").read_bytes()
                except OSError:  # it has ended meanwhile
                    continue
                if SERVICES[victim].encode() in words:
                    return int(pid)
        return None

    def kill(self, victim: str) -> bool:
        """Kill a part of it, if it is running."""
        with suppress(ProcessLookupError):  # it ended by itself meanwhile
            if (pid := self.pid(victim)) is not None:
                os.kill(pid, signal.SIGKILL)
                return True
        return False


async def _acknowledged(load: list[asyncio.Task[None]], found: Survived, turns: int) -> None:
    """Wait until so many more turns are acknowledged. Raises TimeoutError."""
    before = len(found.acknowledged)
    async with asyncio.timeout(LATE_S):
        while len(found.acknowledged) < before + turns:
            if failed := [task for task in load if task.done()]:
                await failed[0]
            await asyncio.sleep(0.01)


@asynccontextmanager
async def _serving(run: Run, found: Survived) -> AsyncIterator[_Served]:
    served = _Served(run, found)
    keeping = asyncio.create_task(served.keep())
    try:
        yield served
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])
        if served.process is not None and served.process.returncode is None:
            served.process.send_signal(signal.SIGTERM)
            await served.process.wait()


async def _client(name: str, port: int, found: Survived, rng: Random) -> None:
    """Send sessions of some turns each, until it is cancelled; what fails is sent again."""
    patience = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", timeout=patience) as http:
        for number in range(1_000_000):
            messages = [{"role": "user", "content": f"fix calc.py, {name} {number}"}]
            for _ in range(rng.randint(1, 4)):
                while (
                    said := await _turn(http, f"{name}-{number}", messages, found, stream=rng.random() < 0.5)
                ) is None:
                    found.failed += 1
                    await asyncio.sleep(0.05)
                messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "and now?"}]


async def _turn(
    http: aiohttp.ClientSession,
    session: str,
    messages: list[dict[str, str]],
    found: Survived,
    *,
    stream: bool,
) -> str | None:
    """Return what the model says, None when no whole answer came."""
    body = {"model": "ostinato", "messages": messages, "max_tokens": 8, "stream": stream}
    headers = {"Authorization": f"Bearer {KEY}", "X-Session-Id": session}
    try:
        async with http.post("/v1/chat/completions", json=body, headers=headers) as response:
            text = await response.text()
            if response.status in (400, 401, 403, 404):
                raise AssertionError(f"a request is refused for good: {text[:300]}")
            if response.status != 200 or (stream and "data: [DONE]" not in text):
                return None
            key = response.headers["x-ostinato-session"], int(response.headers["x-ostinato-turn"])
    except (aiohttp.ClientError, TimeoutError, ConnectionError):
        return None
    found.acknowledged.append(key)
    if not stream:
        return str(json.loads(text)["choices"][0]["message"]["content"] or "")
    pieces = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    return "".join(
        choice["delta"].get("content") or "" for piece in pieces for choice in piece.get("choices", ())
    )


async def survive(run: Run, victims: list[str], seed: int, clients: int = 4) -> Survived:
    """Kill the victims one after the other; each time wait until turns are acknowledged again.

    Raises TimeoutError when `serve` does not serve again.
    """
    found, rng = Survived(), Random(seed)
    run.open_store().add_key(hash_key(KEY), "client")
    async with _serving(run, found) as served:
        load = [
            asyncio.create_task(_client(f"c{seed}-{n}", served.port, found, Random(f"{seed}/{n}")))
            for n in range(clients)
        ]
        try:
            for victim in victims:
                await _acknowledged(load, found, clients)
                async with asyncio.timeout(LATE_S):
                    await asyncio.sleep(rng.random() * 0.2)
                    while not served.kill(victim):  # noqa: ASYNC110 - it may be on its way up again
                        await asyncio.sleep(0.01)
                found.kills[victim] += 1
            await _acknowledged(load, found, clients)
        finally:
            for task in load:
                task.cancel()
            await asyncio.gather(*load, return_exceptions=True)
    return found


async def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, required=True, help="a folder for the run, which is new")
    options = parser.parse_args()
    run = await deployed(options.directory)
    rng = Random(options.seed)
    found = await survive(run, [rng.choice(VICTIMS) for _ in range(options.kills)], options.seed)
    faults = found.faults(run)
    counts = {"kills": dict(found.kills), "failed": found.failed, "starts": found.starts}
    said = counts | {"acknowledged": len(found.acknowledged), "faults": faults}
    sys.stdout.write(json.dumps(said) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
