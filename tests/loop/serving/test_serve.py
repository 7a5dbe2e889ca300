"""Two who want to serve one run: the first goes on as if the second never came; parts of it are killed."""

import json
import socket
import urllib.request
from pathlib import Path

import pytest
from fuzz.serve_kills import DEPLOYED, deployed, serve, survive

from ostinato.loop.serving.serve import held_back
from ostinato.store import Store
from ostinato.types import Decision, Verdict

pytestmark = pytest.mark.slow


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


async def test_a_serve_that_is_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Hundreds of kills: `python -m fuzz.serve_kills`."""
    run = await deployed(tmp_path / "demo")
    found = await survive(run, ["gateway", "serve", "engine"], seed=1, clients=2)
    assert found.kills.total() == 3 and found.starts >= 2
    assert found.faults(run) == []


def test_what_was_held_back_is_said_until_something_is_promoted(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    assert held_back(store) == []
    store.add_verdict(Verdict(version=36, decision=Decision.HOLD, reason="not shown to be better"))
    assert held_back(store) == ["version 36 was held back: hold (not shown to be better)"]
    store.add_verdict(Verdict(version=40, decision=Decision.PROMOTE, reason="better"))
    assert held_back(store) == []
