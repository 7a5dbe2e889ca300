"""Covers loop/team/clients.py: after `ostinato join` a real client works without a further word."""

import asyncio
import os
import sys
import time
from dataclasses import replace

import pytest
from tests.clients.conftest import AFTER, Door
from tests.clients.drive import CLIENTS, Client, Desk, Start, run

from ostinato.loop.team.clients import CLIENTS as JOINED
from ostinato.store.team.joins import Joins
from ostinato.types import TurnKind

pytestmark = [pytest.mark.clients, pytest.mark.slow]


def bare(client: Client) -> Client:
    """Return the client with its command alone: address, key and model stand where join put them."""

    def start(desk: Desk) -> Start:
        return Start(command=client.start(desk).command)

    return replace(client, start=start)


@pytest.mark.parametrize(
    "client", [each for each in CLIENTS if each.name in JOINED], ids=lambda client: client.name
)
async def test_a_client_that_join_set_up_works_under_its_person_s_key(client: Client, door: Door) -> None:
    if client.missing is not None:
        pytest.skip(client.missing)
    code = Joins(door.store.database).invite("ben", "", expires_at=time.time() + 3600)
    words = ("join", door.desk.gateway, code, "--consent", "yes", "--client", client.name)
    environment = {**os.environ, "HOME": str(door.desk.home)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ostinato", *words, env=environment, stdin=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0
    output = await run(bare(client), door.desk)
    assert (door.desk.repo / "calc.py").read_text() == AFTER, output
    (session,) = door.store.sessions()
    assert session.user == "ben" and session.consent
    work = [turn for turn in door.store.turns(session.id) if turn.kind is TurnKind.MAIN]
    assert [turn.untrainable for turn in work] == [None] * client.turns
