"""Covers loop/team/up.py and store/team/lease.py: anything of a team is killed while people work."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from rich.console import Console

from ostinato.loop.folder import OwnedError, owned
from ostinato.loop.services import ServiceError
from ostinato.loop.team.file import Team, make_team, open_team
from ostinato.loop.team.up import up as serve_team
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Store
from ostinato.store.accounts import hash_key
from ostinato.store.team.lease import RecordInUseError, take_lease

KEY = "key of ada"
CHILDREN = {"gateway": "--table gateway", "engine": "--table serve-engine", "dashboard": "ostinato dashboard"}


@pytest.fixture
def served(tmp_path: Path, engine: str, model: Path) -> Team:
    """A team before an engine that is there, with a key for ada."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    terms = {"address": f"http://127.0.0.1:{port}", "people": 20, "context": 4096}
    make_team(tmp_path / "team.toml", engine=engine, model=str(model), **terms)
    team = open_team(tmp_path / "team.toml")
    store = team.open_store()
    store.add_key(hash_key(KEY), "ada")
    store.close()
    return team


@asynccontextmanager
async def up(team: Team, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `ostinato team up` until it says that all of it is there."""
    command = ["-m", "ostinato", "team", "up", "--file", str(team.file), *words]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        while not (line := await process.stdout.readline()).startswith(b"dashboard"):
            assert line, (await process.stderr.read()).decode()
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


def children(supervisor: int) -> dict[str, int]:
    """Return the processes below a supervisor, by what they are."""
    found = {}
    for each in Path(f"/proc/{supervisor}/task").glob("*/children"):
        for pid in map(int, each.read_text().split()):
            words = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            found |= {name: pid for name, said in CHILDREN.items() if said in words}
    return found


class Person:
    """Somebody who works on and on, as a client does that tries again, and notes each answer."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.name, self.answered, self.ends = url, name, 0, False

    async def work(self) -> None:
        body = {"model": "ostinato", "messages": [{"role": "user", "content": "the file"}], "max_tokens": 8}
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as http:
            while not self.ends:
                headers = {"X-Session-Id": f"{self.name}-{self.answered}"}
                with contextlib.suppress(aiohttp.ClientError):
                    url = f"{self.url}/v1/chat/completions"
                    async with http.post(url, json=body, headers=headers) as answer:
                        said = await answer.json()
                        if answer.status == 200 and said["choices"][0]["message"]["content"] == "the answer":
                            self.answered += 1
                await asyncio.sleep(0.02)

    async def more(self, than: int) -> None:
        while self.answered <= than:
            await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_whatever_is_killed_no_answered_turn_is_lost(served: Team) -> None:
    person = Person(served.address, "ada")
    async with up(served, "--no-cycle") as process:
        working = asyncio.create_task(person.work())
        for name in (*CHILDREN, "gateway"):
            await person.more(person.answered + 2)
            before = children(process.pid)[name]
            os.kill(before, signal.SIGKILL)
            while children(process.pid).get(name, before) == before:
                await asyncio.sleep(0.05)
            await person.more(person.answered + 2)  # at the same address
        before = children(process.pid)
        process.kill()
        await process.wait()
        while any(Path(f"/proc/{pid}").exists() for pid in before.values()):
            await asyncio.sleep(0.05)
    async with up(served):  # as systemd does: folder, port and lease are free
        await person.more(person.answered + 2)
        with pytest.raises(OwnedError, match="is in use by ostinato team up"), owned(served.front, "test"):
            pass
        cycle = served.front / "logs" / "cycle.log"
        while not (cycle.exists() and "no checkpoint" in cycle.read_text()):
            await person.more(person.answered)  # a cycle that cannot work keeps nobody from theirs
        person.ends = True
        await working
    record = served.open_store()
    kept = {each.id for each in record.sessions() if record.turns(each.id)}
    record.close()
    assert {f"ada-{number}" for number in range(person.answered)} <= kept
    assert (served.front / "logs" / "dashboard.log").read_text().count("ticket") == 0


@pytest.mark.slow
async def test_an_engine_with_another_tokenizer_ends_it_with_the_reason(served: Team, tmp_path: Path) -> None:
    Tokenizer.train(["words of another model"], 290).save(tmp_path / "smol")
    with pytest.raises(ServiceError, match="with another tokenizer than this checkpoint's"):
        await serve_team(served, Console(quiet=True))
    assert not (served.front / "logs" / "cycle.log").exists()


def test_two_teams_do_not_serve_from_one_record(record: Store) -> None:
    take_lease(record, "gpu-1:/srv/team", 30)
    take_lease(record, "gpu-1:/srv/team", 30)  # as after a kill
    with pytest.raises(RecordInUseError, match="the team at gpu-1:/srv/team, which is up"):
        take_lease(record, "gpu-2:/srv/team", 30)
    take_lease(record, "gpu-1:/srv/team", 0)
    take_lease(record, "gpu-2:/srv/team", -10)  # one that died without a word
    take_lease(record, "gpu-1:/srv/team", 30)
