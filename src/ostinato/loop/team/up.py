"""The supervisor of a team: gateway, dashboard and cycle at one address, each started again when it ends.

::

    people ─► gateway ─► engine servers ─► the team's engine        dashboard        cycle
                 └────────► the record ◄────────────────────────────────┴──────────────┘

The gateway answers a turn once it is in the record, so a child that is killed takes no answered turn with it.
It keeps its port, and children never outlive the supervisor, which systemd starts again.
"""

import asyncio
import logging
import math
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
from rich.console import Console

from ostinato.gateway.config import GatewayServerConfig
from ostinato.harness.profiles.profile import profile
from ostinato.loop.folder import owned
from ostinato.loop.hub import find_model
from ostinato.loop.live_config import allowed_hosts
from ostinato.loop.placement.base import ServiceCommand
from ostinato.loop.placement.local import LocalPlace
from ostinato.loop.services import Services
from ostinato.loop.team.engines import OwnEngines
from ostinato.loop.team.file import Team
from ostinato.store import Store
from ostinato.store.team.lease import take_lease
from ostinato.web.port import check_free, root_of
from ostinato.web.secret import ENGINE_SECRET

log = logging.getLogger(__name__)
FIRST_PAUSE_S, LONGEST_PAUSE_S, LASTED_S = 0.5, 300.0, 60.0
"""Seconds before a command is started again, twice as long each time that it did not last."""
ASKED_S, LEASE_S = 2.0, 30.0


async def up(team: Team, console: Console, *, cycle: bool = True) -> int:
    """Serve until the process is stopped; without `cycle` only record.

    Raises RecordInUseError while another team serves from the record, OwnedError while one serves from the
    folder, and ServiceError for an engine with another tokenizer than that of the model which the file names.
    """
    live, model = team.config.live, str(team.config.model.path)
    checkpoint = await asyncio.to_thread(find_model, model, tokenizer_only=True)
    owner = f"{socket.gethostname()}:{team.run.directory.resolve()}"
    with ExitStack() as stack:
        front = stack.enter_context(owned(team.front, "team up"))
        for port in (live.port, live.port + 1):
            check_free(live.host, port)
        store = team.open_store()
        stack.callback(store.close)
        take_lease(store, owner, LEASE_S)
        stack.callback(take_lease, store, owner, 0)
        await _engines_answer(team.config.engine.url, console)
        async with Services(front) as services:
            services.most_restarts = math.inf
            own = OwnEngines(services, store, team, checkpoint)
            door = GatewayServerConfig(
                store=team.run.store,
                checkpoint=checkpoint,
                harness=profile(team.config.harness.profile).hash,
                host=live.host,
                port=live.port,
                allowed_hosts=allowed_hosts(live),
            )
            starting = asyncio.create_task(services.start("gateway", "ostinato.gateway.server", door))
            try:
                engines = await own.begin()
            finally:
                await starting
            for engine in engines:
                said = engine.warning or "every turn can be trained on"
                console.print(f"serving {engine.abilities.model or model}: {said}", soft_wrap=True)
            console.print(f"gateway    {team.address}\ndashboard  {team.dashboard}", soft_wrap=True)
            dashboard, cycling = _commands(team, front.logs, checkpoint, services.secret)
            commands = [dashboard, replace(cycling, on_end=own.stand_in)] if cycle else [dashboard]
            async with _kept(commands):
                await services.guard(asyncio.gather(_hold(store, owner), own.follow()))
    return 0


async def _engines_answer(urls: Sequence[str], console: Console) -> None:
    """Wait until all engines answer: after a reboot a large model takes minutes."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ASKED_S)) as http:
        waited_for, left = "", list(urls)
        while left:
            try:
                async with http.get(f"{root_of(left[0])}/v1/models"):
                    left.pop(0)
            except (aiohttp.ClientError, TimeoutError) as error:
                if waited_for != left[0]:
                    console.print(f"waits for the engine at {left[0]}: {error}", soft_wrap=True)
                waited_for = left[0]
                await asyncio.sleep(ASKED_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCommand:
    """A command of ostinato that is started again whenever it ends.

    >>> KeptCommand(words=("dashboard", "--port", "0"), log=Path("dashboard.log")).speaks
    False
    """

    words: tuple[str, ...]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    speaks: bool = False
    """Whether its one line of output lets people in, as a dashboard's does, and belongs in no log."""
    on_end: Callable[[], None] = lambda: None
    """Called each time that it has ended."""

    async def keep(self) -> None:
        arguments, pause_s = ("-m", "ostinato", *self.words), FIRST_PAUSE_S
        command = ServiceCommand(
            arguments=arguments, log=self.log, environment=self.environment, speaks=self.speaks
        )
        while True:
            place, began = LocalPlace(), time.monotonic()
            try:
                await place.start(command)
                status = await place.ended()
            finally:
                await place.stop()
            self.on_end()
            lasted = time.monotonic() - began > LASTED_S
            pause_s = FIRST_PAUSE_S if lasted else min(2 * pause_s, LONGEST_PAUSE_S)
            log.warning("%s ended with status %d, and starts again in %g s", self.words[0], status, pause_s)
            await asyncio.sleep(pause_s)


def _commands(team: Team, logs: Path, checkpoint: Path, secret: str) -> tuple[KeptCommand, KeptCommand]:
    """Return the dashboard and the cycle, which reads the team's own file.

    The cycle has a gateway of its own, for practice and benchmarks. People meet its engines at ours, so both
    know one secret.
    """
    live, folder = team.config.live, ("--directory", str(team.run.directory))
    names = [word for name in allowed_hosts(live) for word in ("--allow-host", name)]
    at = ("--host", live.host, "--port", str(live.port + 1), "--checkpoint", str(checkpoint), *names)
    cycle = ("run", str(team.file), *folder, "--set", "live.port=0")
    return (
        KeptCommand(words=("dashboard", *folder, *at), log=logs / "dashboard.log", speaks=True),
        KeptCommand(words=cycle, log=logs / "cycle.log", environment={ENGINE_SECRET: secret}),
    )


@asynccontextmanager
async def _kept(commands: Sequence[KeptCommand]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(command.keep()) for command in commands]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _hold(store: Store, owner: str) -> None:
    """Prolong the lease for ever. Raises RecordInUseError once another team has it."""
    while True:
        await asyncio.sleep(LEASE_S / 3)
        await asyncio.to_thread(take_lease, store, owner, LEASE_S)
