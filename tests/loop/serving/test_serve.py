"""Two who want to serve one run: the first goes on as if the second had never come."""

import asyncio
import json
import os
import socket
import sys
import urllib.request
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ostinato.loop.config import RunConfig
from ostinato.loop.folder import open_run, owned
from ostinato.loop.run import START, Run
from ostinato.loop.serving.serve import held_back
from ostinato.loop.stages.prepare import prepare
from ostinato.model.checkpoint import load
from ostinato.sandbox.config import SandboxConfig
from ostinato.store import Store
from ostinato.sync import Publisher
from ostinato.types import Arm, Decision, Verdict

pytestmark = pytest.mark.slow
DEPLOYED = Arm(name="champion", version=0, share=1.0, engines=("http://127.0.0.1:9",))


async def deployed(directory: Path) -> Run:
    """A run with a tiny model that has been deployed once."""
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


async def serve(run: Run, port: int) -> asyncio.subprocess.Process:
    command = ("-m", "ostinato.cli", "serve", "--directory", str(run.directory), "--port", str(port))
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=env
    )


def healthy(port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30) as answer:
        return bool(json.loads(answer.read()) is not None)


async def test_a_second_serve_or_demo_does_not_disturb_the_first(tmp_path: Path) -> None:
    run = await deployed(tmp_path / "demo")
    store = run.open_store()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        unlucky = await serve(run, port)
        _, complaint = await unlucky.communicate()
        assert unlucky.returncode == 2
        assert f"cannot listen on 127.0.0.1:{port} (Address already in use): stop".encode() in complaint
        assert store.arms() == [DEPLOYED], "arms are written when everything is up"
    first = await serve(run, port)
    try:
        assert first.stdout is not None
        assert b"serving version 0" in await first.stdout.readline()
        while not (line := (await first.stdout.readline()).decode()).startswith("see it: "):
            assert line, "it says where the dashboard is"
        with urllib.request.urlopen(line.partition(": ")[2].strip()) as page:
            assert page.status == 200
        arms = store.arms()
        assert arms != [DEPLOYED]
        for other in (port, 0):
            second = await serve(run, other)
            _, complaint = await second.communicate()
            assert second.returncode == 2
            assert f"is in use by ostinato serve, process {first.pid}".encode() in complaint
        assert store.arms() == arms and healthy(port)
    finally:
        first.terminate()
        await first.communicate()


def test_what_was_held_back_is_said_until_something_is_promoted(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    assert held_back(store) == []
    store.add_verdict(Verdict(version=36, decision=Decision.HOLD, reason="not shown to be better"))
    assert held_back(store) == ["version 36 was held back: hold (not shown to be better)"]
    store.add_verdict(Verdict(version=40, decision=Decision.PROMOTE, reason="better"))
    assert held_back(store) == []
