"""Serve a checkpoint, or a vLLM that is already there, behind a recording gateway: no run is needed.

::

    people ─► gateway ─► engine server ─► embedded engine │ a vLLM it starts │ a vLLM that is there
                 └─► store

The gateway speaks one protocol. In front of each vLLM that is already there stands an engine server of ours,
which translates and costs one hop on the loopback.
"""

import asyncio
import shutil
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import aiohttp
from rich.console import Console

from ostinato.engine.config import DraftKind, EngineServerConfig
from ostinato.gateway.config import GatewayServerConfig
from ostinato.loop.dashboard.beside import dashboard_beside
from ostinato.loop.folder import owned
from ostinato.loop.hub import find_model
from ostinato.loop.live_config import CHAMPION
from ostinato.loop.people import recording_notice
from ostinato.loop.run import Run
from ostinato.loop.services import Service, Services
from ostinato.store import Store
from ostinato.store.accounts import hash_key, new_key
from ostinato.store.config import refuse_password
from ostinato.types import Abilities, Arm, from_json
from ostinato.web.port import check_free


class ServeModelError(ValueError):
    """The settings do not say what is to be served."""


RESPONDS_S = 5.0
"""The seconds within which an engine that is there responds to a request for its models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeModelConfig:
    """What is served, and where it is recorded.

    >>> ServeModelConfig(model="Qwen/Qwen3-8B", engines=("http://127.0.0.1:8000",)).context
    4096
    """

    model: str
    """A directory in Hugging Face layout, or the name of a repository on the hub. Beside `engines` only its
    tokenizer and chat template are read."""
    engines: tuple[str, ...] = ()
    """URLs of servers that serve this model already; () starts one here."""
    directory: Path = Path("runs/serve")
    """The folder of logs, and of the store when `store` names none."""
    store: str = ""
    """SQLite file or database URL of the record."""
    objects: str | None = None
    """Folder or URL of an object store: the newest version there is served, and each one that follows."""
    version: int = 0
    """The number under which turns of servers that are already there are recorded."""
    host: str = "127.0.0.1"
    port: int = 8080
    aliases: tuple[str, ...] = ()
    slots: int = 16
    context: int = 4096
    """Tokens of prompt and completion together, of an engine that is started here."""
    backend: Literal["auto", "embedded", "vllm"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    tensor_parallel: int = 1
    arguments: tuple[str, ...] = ()
    python: str | None = None
    """The interpreter that has vLLM."""
    draft: DraftKind = "auto"

    def __post_init__(self) -> None:
        refuse_password(self.store)
        here = self.objects or self.arguments or self.tensor_parallel > 1 or self.backend != "auto"
        if self.engines and here:
            raise ServeModelError(
                "--objects, --backend, --tensor-parallel and --argument belong to an engine that is started "
                "here: leave them out beside --engine, or leave --engine out"
            )


async def serve_model(config: ServeModelConfig, console: Console) -> int:
    """Serve until the process is stopped. A folder that was made for it goes again when nothing is served.

    Raises ModelMissingError when the model cannot be found, OwnedError when another process serves from the
    folder, and ServiceError, with its reason, when an engine or the gateway does not start.
    """
    await _check_there(config.engines)
    checkpoint = await asyncio.to_thread(find_model, config.model, tokenizer_only=bool(config.engines))
    made = [each for each in (config.directory, *config.directory.parents) if not each.exists()]
    with ExitStack() as unserved, owned(config.directory, "serve") as run:
        if made:
            unserved.callback(_remove, made)
        check_free(config.host, config.port)
        store = Store.open(config.store or run.store)
        try:
            async with Services(run) as services:
                engines = await start_engines(services, config, checkpoint)
                gateway = await services.start(
                    "serve-gateway", "ostinato.gateway.server", _gateway(config, run, checkpoint)
                )
                point_arms(store, engines)
                _say(console, config, gateway, engines, store)
                unserved.pop_all()
                where = config.store or run.store
                shown = ("--store", where, "--checkpoint", str(checkpoint))
                with dashboard_beside(run.logs / "dashboard.log", *shown) as beside:
                    console.print(beside.words, soft_wrap=True)
                    await services.guard(asyncio.Event().wait())
        finally:
            store.close()
    return 0


async def start_engines(
    services: Services, config: ServeModelConfig, checkpoint: Path
) -> list["ServedEngine"]:
    """Start one engine server, or one before each server that is already there."""
    here = EngineServerConfig(
        checkpoint=checkpoint,
        objects=config.objects,
        follow=config.objects is not None,
        backend=config.backend,
        slots=config.slots,
        max_len=config.context,
        dtype=config.dtype,
        tensor_parallel=config.tensor_parallel,
        arguments=config.arguments,
        python=config.python,
        draft=config.draft,
    )
    there = [
        EngineServerConfig(
            checkpoint=checkpoint, backend="remote", remote=url, version=config.version, max_len=1
        )
        for url in config.engines
    ]
    engines = list[ServedEngine]()
    for number, settings in enumerate(there or [here]):
        service = await services.start(f"serve-engine-{number}", "ostinato.engine.server", settings)
        engines.append(await ServedEngine.of(service))
    return engines


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedEngine:
    url: str
    version: int
    abilities: Abilities

    @classmethod
    async def of(cls, service: Service) -> "ServedEngine":
        async with aiohttp.ClientSession() as http, http.get(service.url + "/healthz") as response:
            health = await response.json()
        abilities = from_json(Abilities, health["abilities"])
        return cls(url=service.url, version=int(health["version"]), abilities=abilities)

    @property
    def warning(self) -> str | None:
        """What can never be trained of its turns, and why; None when everything can."""
        can = self.abilities
        missing = [
            name
            for name, there in (("token ids", can.token_ids), ("log-probabilities", can.logprobs))
            if not there
        ]
        if missing:
            return f"it returns no {' and no '.join(missing)}: its turns are recorded and never trained"
        if not can.tempered:
            return (
                "its log-probabilities are those of temperature 1: turns sampled at another temperature are "
                "recorded and never trained. Start vLLM with --logprobs-mode processed_logprobs"
            )
        return None


def _remove(folders: Sequence[Path]) -> None:
    """Remove the first folder with all that is in it, and of those above it what is empty then."""
    shutil.rmtree(folders[0])
    with suppress(OSError):  # somebody else has put something there meanwhile
        for folder in folders[1:]:
            folder.rmdir()


async def _check_there(engines: Sequence[str]) -> None:
    """Raise ServeModelError for an engine at whose address nothing responds, before a model is looked for."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=RESPONDS_S)) as http:
        for url in engines:
            try:
                async with http.get(f"{url}/v1/models"):
                    pass
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                raise ServeModelError(
                    f"--engine {url}: nothing responds there ({str(error) or type(error).__name__}): start "
                    "the engine, or correct the address"
                ) from error


def _gateway(config: ServeModelConfig, run: Run, checkpoint: Path) -> GatewayServerConfig:
    return GatewayServerConfig(
        store=config.store or run.store,
        checkpoint=checkpoint,
        host=config.host,
        port=config.port,
        aliases=config.aliases,
    )


def point_arms(store: Store, engines: Sequence[ServedEngine]) -> None:
    """Make the champion's arm point to `engines`; other arms stay as an operator set them."""
    urls, version = tuple(engine.url for engine in engines), engines[0].version

    def pointed(arms: Sequence[Arm]) -> list[Arm]:
        others = [arm for arm in arms if arm.name != CHAMPION]
        share = max(0.0, 1.0 - sum(arm.share for arm in others))
        known = next((arm for arm in arms if arm.name == CHAMPION), None)
        made = known or Arm(name=CHAMPION, version=version, share=share, engines=urls)
        return [replace(made, version=version, engines=urls), *others]

    store.change_arms(pointed)


def _say(
    console: Console,
    config: ServeModelConfig,
    gateway: Service,
    engines: Sequence[ServedEngine],
    store: Store,
) -> None:
    for number, engine in enumerate(engines):
        name = config.engines[number] if config.engines else config.model
        console.print(
            f"serving {engine.abilities.model or name} as version {engine.version}: {name}", soft_wrap=True
        )
        if engine.warning:
            console.print(f"  {engine.warning}", soft_wrap=True)
    console.print("in a git repository run:\n")
    key = new_key()
    store.add_key(hash_key(key), "local")
    console.print(f"  export OSTINATO_URL={gateway.url} OSTINATO_KEY={key}", soft_wrap=True)
    console.print('  ostinato code "fix calc.py"\n')
    record = config.store or config.directory / "store.db"
    console.print(recording_notice(store, record), markup=False, soft_wrap=True)
