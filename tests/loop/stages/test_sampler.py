"""Practice with samplers in processes of their own, on this machine and on a Ray cluster of three nodes, with
the record in a SQLite file and on a PostgreSQL server.

Covers loop/stages/sampler.py and loop/stages/practise.py.
"""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fuzz.bucket import BUCKET, BucketServer
from fuzz.postgres import PASSWORD, PostgresServer, name_of
from fuzz.practice import SHAPE
from fuzz.ray_nodes import add_node, pids_of, signal_all
from tests.test_loop import pids

from ostinato.config import load
from ostinato.loop.config import RunConfig
from ostinato.loop.folder import open_run
from ostinato.loop.run import START, Run
from ostinato.loop.stages.prepare import prepare
from ostinato.store import Ledger
from ostinato.sync import Subscriber
from ostinato.types import Ending

pytestmark = pytest.mark.slow
MOST_S = 600.0
"""Seconds after which a run counts as hung; the longest takes a tenth of them where the machine is quiet."""
PRACTICE = """
[sandbox]
backend = "process"
[engine]
slots = 24
context = 512
standby = {standby}
[practice]
mode = "{mode}"
group_size = 4
groups_at_once = 2
ready_ahead = 3
samplers = {samplers}
lease_s = 20.0
[refine]
versions = {versions}
groups = 2
[schedule]
stages = ["practice"]
[model]
path = "{start}"
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a tiny model with random weights."""
    directory = tmp_path_factory.mktemp("start")
    (directory / "start.toml").write_text(SHAPE)
    run, config = Run(directory=directory / "run"), load(RunConfig, directory / "start.toml")
    run.directory.mkdir()
    open_run(run, config, fresh=False)
    asyncio.run(prepare(config, run))
    return run.checkpoint(START)


def settings(
    start: Path, *, mode: str = "asynchronous", samplers: int = 1, versions: int = 3, standby: int = 0
) -> str:
    return PRACTICE.format(start=start, mode=mode, samplers=samplers, versions=versions, standby=standby)


def begin(folder: Path, name: str, text: str) -> "subprocess.Popen[bytes]":
    (folder / f"{name}.toml").write_text(text)
    command = [sys.executable, "-m", "ostinato", "run", str(folder / f"{name}.toml")]
    shown = os.environ | {"PYTHONFAULTHANDLER": "1"}
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--directory", str(folder / name)], stdout=log, stderr=log, env=shown
        )


def status_of(process: "subprocess.Popen[bytes]") -> int:
    """Wait for the end of a run; one that hangs is ended, and its log then says where it waited."""
    try:
        return process.wait(MOST_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        return process.wait()


def finish(folder: Path, name: str, text: str) -> dict[str, Any]:
    process = begin(folder, name, text)
    assert status_of(process) == 0, (folder / f"{name}.log").read_text()[-6000:]
    report: dict[str, Any] = json.loads((folder / name / "report.json").read_text())
    return report


def whole(directory: Path) -> None:
    """Nothing was trained twice, and everything has an end."""
    store = Run(directory=directory).open_store()
    ledger = Ledger(store)
    assert (ledger.trained_twice(), ledger.unended(), ledger.unaccounted()) == (0, 0, 0)
    store.close()


def kill_one(module: str, directory: Path, table: str = "") -> None:
    """Kill the first process of a module, or the one with this table of settings, once the learner has
    published."""
    while not (directory / "learner-practice" / "learner.jsonl").exists():
        time.sleep(0.1)
    while not (found := [pid for pid in pids(module, directory) if not table or table in words_of(pid)]):
        time.sleep(0.1)
    os.kill(found[0], signal.SIGKILL)


def words_of(pid: int) -> list[str]:
    """Return the words of a process's command line; none when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []


def test_three_samplers_share_one_ledger_though_one_is_killed(tmp_path: Path, start: Path) -> None:
    process = begin(tmp_path, "many", settings(start, samplers=3))
    kill_one("ostinato.loop.stages.sampler", tmp_path / "many")
    assert status_of(process) == 0, (tmp_path / "many.log").read_text()[-6000:]
    whole(tmp_path / "many")


@pytest.mark.deep
def test_a_run_keeps_its_weights_in_a_bucket_whose_server_is_killed(
    tmp_path: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, text = tmp_path / "bucket", settings(start, versions=4)
    text += f'\n[store]\nobjects = "s3://{BUCKET}/run"\n'
    with BucketServer(tmp_path / "held") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        process = begin(tmp_path, "bucket", text)
        while not (folder / "learner-practice" / "learner.jsonl").exists():
            assert process.poll() is None, (tmp_path / "bucket.log").read_text()[-6000:]
            time.sleep(0.1)
        server.kill()
        server.start()
        assert status_of(process) == 0, (tmp_path / "bucket.log").read_text()[-6000:]
        whole(folder)
        assert Subscriber(Run(directory=folder).open_objects()).head() == 4
        assert not list((folder / "objects").iterdir())
        assert status_of(begin(tmp_path, "bucket", text)) == 2
        assert "holds the objects of another run" in (tmp_path / "bucket.log").read_text()


@pytest.mark.deep
def test_an_engine_that_stands_by_takes_the_place_of_one_that_is_killed(tmp_path: Path, start: Path) -> None:
    process = begin(tmp_path, "standby", settings(start, standby=1, versions=6))
    kill_one("ostinato.engine.server", tmp_path / "standby", table="engine-practice")
    assert status_of(process) == 0, (tmp_path / "standby.log").read_text()[-6000:]
    tables = tomllib.loads((tmp_path / "standby" / "processes.toml").read_text())
    store = Run(directory=tmp_path / "standby").open_store()
    (arm,) = [arm for arm in store.arms() if arm.name == "practice"]
    assert arm.engines == (f"http://127.0.0.1:{tables['engine-practice-1']['port']}",)
    assert not [session for session in store.sessions() if session.ending is Ending.INFRASTRUCTURE]
    store.close()
    whole(tmp_path / "standby")


@pytest.mark.ray
def test_the_account_on_a_cluster_is_that_on_this_machine(cluster: Any, tmp_path: Path, start: Path) -> None:
    here = settings(start, mode="synchronous", versions=2)
    table = f'\n[placement]\nkind = "ray"\naddress = "{cluster.address}"\n'
    one, other = finish(tmp_path, "local", here), finish(tmp_path, "ray", here + table)
    assert one["practice"]["root"] == other["practice"]["root"]
    whole(tmp_path / "ray")


@pytest.mark.ray
def test_a_node_that_hangs_in_practice_and_wakes_again_costs_nothing(
    cluster: Any, tmp_path: Path, start: Path
) -> None:
    """The engine, the learner and the samplers move to another node, and those that wake do no harm."""
    text = settings(start, samplers=2, versions=6)
    text += f'\n[placement]\nkind = "ray"\naddress = "{cluster.address}"\n'
    for kind in ("engine", "learner", "sampler"):
        text += f"[placement.resources.{kind}]\ncpus = 0.1\ncustom = {{ practice = 0.2 }}\n"
    modules = {"ostinato.engine.server", "ostinato.loop.stages.sampler", "ostinato.train.learner"}
    with ExitStack() as left:  # a test that fails here leaves no node that a later run could be placed on
        lost = add_node(cluster, "r9", place="practice")
        left.callback(cluster.remove_node, lost)
        process = begin(tmp_path, "hung", text)
        left.callback(process.kill)
        while not (tmp_path / "hung" / "learner-practice" / "learner.jsonl").exists():
            assert process.poll() is None, (tmp_path / "hung.log").read_text()[-6000:]
            time.sleep(0.1)
        frozen = all_of(modules, lost, process, tmp_path / "hung.log")
        other = add_node(cluster, "r9", place="practice")
        left.callback(cluster.remove_node, other)
        left.callback(signal_all, frozen, signal.SIGCONT)
        with nobody_writing(tmp_path / "hung" / "store.db"):
            signal_all(frozen, signal.SIGSTOP)
        all_of(modules, other, process, tmp_path / "hung.log")
        signal_all(frozen, signal.SIGCONT)
        assert status_of(process) == 0, (tmp_path / "hung.log").read_text()[-6000:]
        whole(tmp_path / "hung")


@contextmanager
def nobody_writing(path: Path) -> Iterator[None]:
    """Hold the lock of a SQLite file meanwhile: one who is suspended with it stops all others for good."""
    with closing(sqlite3.connect(path, timeout=60.0, isolation_level=None)) as record:
        record.execute("BEGIN IMMEDIATE")
        yield


def all_of(modules: set[str], node: Any, process: "subprocess.Popen[bytes]", log: Path) -> list[int]:
    """Wait until all these modules run on a node; return the ids of the node's processes, or fail as the run
    ends."""
    while True:
        found = pids_of(node)
        missing = modules - {word for pid in found for word in words_of(pid)}
        if not missing:
            return found
        assert process.poll() is None, f"never on the node: {missing}; {log.read_text()[-6000:]}"
        time.sleep(0.1)


@pytest.mark.ray
def test_a_conductor_that_is_killed_goes_on_on_the_cluster(cluster: Any, tmp_path: Path, start: Path) -> None:
    text = settings(start, samplers=2, versions=6)
    text += f'\n[placement]\nkind = "ray"\naddress = "{cluster.address}"\n'
    process = begin(tmp_path, "killed", text)
    while not (tmp_path / "killed" / "learner-practice" / "learner.jsonl").exists():
        assert process.poll() is None, (tmp_path / "killed.log").read_text()[-6000:]
        time.sleep(0.1)
    process.kill()
    process.wait()
    finish(tmp_path, "killed", text)
    whole(tmp_path / "killed")


def in_database(url: str) -> str:
    return f'\n[store]\nurl = "{url}"\n'


def secrets_in(directory: Path) -> list[Path]:
    """Return the files of a run that hold the password of its database."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    return [path for path in files if PASSWORD.encode() in path.read_bytes()]


def arguments_of(directory: Path) -> str:
    """Return the command lines of the processes that work for a run."""
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    return "\n".join(line.decode() for line in lines if str(directory).encode() in line)


@pytest.mark.postgres
def test_a_run_records_in_a_database_though_a_sampler_and_the_server_are_killed(
    postgres: PostgresServer, locked: str, tmp_path: Path, start: Path
) -> None:
    folder, text = tmp_path / "many", settings(start, samplers=2) + in_database(locked)
    process = begin(tmp_path, "many", text)
    kill_one("ostinato.loop.stages.sampler", folder)
    assert PASSWORD not in arguments_of(folder)
    os.kill(postgres.backends(name_of(locked))[0], signal.SIGKILL)  # the server ends all others and recovers
    assert status_of(process) == 0, (tmp_path / "many.log").read_text()[-6000:]
    whole(folder)
    assert not (folder / "store.db").exists() and not secrets_in(folder)
    again = begin(tmp_path, "many", text)
    assert status_of(again) == 2 and "holds the record of another run" in (tmp_path / "many.log").read_text()
    assert (folder / "report.json").exists()


@pytest.mark.ray
@pytest.mark.postgres
def test_a_run_on_a_cluster_records_in_a_database(
    cluster: Any, locked: str, tmp_path: Path, start: Path
) -> None:
    table = f'\n[placement]\nkind = "ray"\naddress = "{cluster.address}"\n' + in_database(locked)
    report = finish(tmp_path, "ray", settings(start, samplers=2, versions=2) + table)
    assert report["practice"]["version"] == 2
    whole(tmp_path / "ray")
    assert not secrets_in(tmp_path / "ray")
