"""Serve the version that a run deployed: one engine, one gateway on the loopback, and a key for a person."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ostinato.config import load
from ostinato.gateway.config import GatewayServerConfig
from ostinato.harness.profiles.profile import profile
from ostinato.loop.config import RunConfig
from ostinato.loop.dashboard.beside import Beside, dashboard_beside
from ostinato.loop.folder import RunError, owned
from ostinato.loop.live_config import CHAMPION, LiveConfig
from ostinato.loop.people import recording_notice
from ostinato.loop.resources import engine_settings
from ostinato.loop.run import START, Run
from ostinato.loop.services import Services
from ostinato.store import Store
from ostinato.store.accounts import hash_key, new_key
from ostinato.types import Arm
from ostinato.web.port import check_free

PORT = 8080


async def serve(
    directory: Path, host: str | None, port: int | None, aliases: Sequence[str], console: Console
) -> int:
    """Serve until the process is stopped; `aliases` are other names of the model.

    The address is that of the run's gateway (`live.host`, `live.port`) where none is given.

    Nothing in the store is changed before engine and gateway are up, and only by the one owner of the folder.
    Raises RunError when the folder has deployed nothing yet, OwnedError when another process owns it.
    """
    run = Run(directory=directory)
    log, shown = run.logs / "dashboard.log", ("--directory", str(directory))
    with owned(directory, "serve"), dashboard_beside(log, *shown) as beside:
        live = load(RunConfig, run.config).live if run.config.exists() else LiveConfig()
        address = host or live.host, PORT if port is None and not live.port else port or live.port
        return await _serve(run, address, aliases, console, beside)


async def _serve(
    run: Run, address: tuple[str, int], aliases: Sequence[str], console: Console, beside: Beside
) -> int:
    store = run.open_store()
    deployed = next((arm for arm in store.arms() if arm.name == CHAMPION), None)
    if deployed is None:
        raise RunError(f"the run in {run.directory} has deployed no version yet: let `ostinato demo` finish")
    host, port = address
    check_free(host, port)
    config, start = load(RunConfig, run.config), run.checkpoint(START)
    async with Services(run) as services:
        versions = [
            engine_settings(config, run, deployed.version, url) for url in config.engine.url or [None]
        ]
        engines = [
            await services.start(f"serve-engine-{number}", "ostinato.engine.server", version)
            for number, version in enumerate(versions)
        ]
        door = GatewayServerConfig(
            store=run.store,
            checkpoint=start,
            harness=profile(config.harness.profile).hash,
            host=host,
            port=port,
            aliases=tuple(aliases),
        )
        gateway = await services.start("serve-gateway", "ostinato.gateway.server", door)
        urls = tuple(engine.url for engine in engines)
        store.set_arms([Arm(name=CHAMPION, version=deployed.version, share=1.0, engines=urls)])
        for line in held_back(store):
            console.print(line, highlight=False)
        console.print(f"serving version {deployed.version}; in a git repository run:\n")
        console.print(f"  export OSTINATO_URL={gateway.url} OSTINATO_KEY={_new_key(store)}", soft_wrap=True)
        console.print('  ostinato code "fix calc.py"\n')
        console.print(recording_notice(store, run.store), markup=False, highlight=False, soft_wrap=True)
        console.print(beside.words, soft_wrap=True)
        await services.guard(asyncio.Event().wait())
    return 0


def held_back(store: Store) -> list[str]:
    """Return a line on the newest candidate if it is not the version that is served."""
    last = store.verdicts()[-1:]
    return [
        f"version {verdict.version} was held back: {verdict.decision} ({verdict.reason})"
        for verdict in last
        if not verdict.decision.promotes
    ]


def _new_key(store: Store) -> str:
    """Make a key for the local user; the store keeps its hash only."""
    key = new_key()
    store.add_key(hash_key(key), "local")
    return key
