"""The open resources of a run: store, gateway, engines, sandboxes and keys, closed together."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from ostinato import extras
from ostinato.deploy.traffic import point_arm, put_arm
from ostinato.engine.config import EngineServerConfig
from ostinato.gateway.config import GatewayServerConfig
from ostinato.gateway.upstream import EngineClient
from ostinato.harness.client import GatewayClient, open_http
from ostinato.harness.episode import EpisodeRunner
from ostinato.harness.profiles.profile import profile
from ostinato.harness.providers.search import SearchAt
from ostinato.loop.base import Display
from ostinato.loop.config import RunConfig
from ostinato.loop.live_config import allowed_hosts
from ostinato.loop.placement.base import PlacementError, ServicePlacement
from ostinato.loop.placement.config import EnginesConfig, PlacementConfig
from ostinato.loop.placement.local import LocalPlacement
from ostinato.loop.results import Counters
from ostinato.loop.run import START, Run
from ostinato.loop.services import Service, Services, watch
from ostinato.sandbox.base import Backend
from ostinato.sandbox.choose import choose_backend
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.search.config import SearchConfig
from ostinato.store import Store
from ostinato.store.accounts import hash_key, new_key
from ostinato.types import Arm
from ostinato.web.port import root_of
from ostinato.web.secret import bearer

log = logging.getLogger(__name__)
T = TypeVar("T")
POLL_S = 1.0
"""The pause between two looks at a release."""
GATEWAY_KEY, SEARCH_KEY = "OSTINATO_SAMPLER_KEY", "OSTINATO_SAMPLER_SEARCH_KEY"
"""The environment variables in which a sampler finds its keys of the gateway and of the search service."""
ANSWER_S = aiohttp.ClientTimeout(total=10.0)
"""The longest wait for a question to an engine that is no request for tokens."""


class ArmEngines:
    """Engines that serve the same versions, of which one at a time serves the arm; the others stand by.

    When the serving one dies or hangs, the arm gets the address of one that stands by at once. The dead one
    is started again (`services.py`), and then stands by itself.

    `point` is called with the address of that one, now and whenever it is another. With `together` all of
    them serve the arm, and it is called with the addresses of those that are up.
    """

    def __init__(
        self, engines: Sequence[Service], point: Callable[..., None], *, together: bool = False
    ) -> None:
        self.engines = tuple(engines)
        self._point = point
        self._together = together
        self._serving = self.engines[0]
        self._pointed: tuple[str, ...] = ()
        for each in self.engines:
            each.on_change.append(self._choose)
        self._choose()

    @property
    def url(self) -> str:
        """The address of an engine that serves the arm."""
        return self._serving.url

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of all that serve the arm."""
        return self._pointed or (self.url,)

    def _choose(self) -> None:
        """Let another engine serve in place of one that is not up, and follow one that has moved."""
        if not self._serving.up:
            up = [each for each in self.engines if each.up]
            if not up:
                return
            log.warning("%s is down, and %s serves in its place", self._serving.name, up[0].name)
            self._serving = up[0]
        all_up = tuple(each.url for each in self.engines if each.up)
        pointed = all_up if self._together and all_up else (self.url,)
        if pointed != self._pointed:
            self._pointed = pointed
            self._point(*pointed)


class RunResources:
    """The open resources of one run. The gateway is up; each stage starts the engines that it needs."""

    def __init__(
        self,
        config: RunConfig,
        run: Run,
        show: Display,
        *,
        store: Store,
        services: Services,
        gateway: Service,
        backend: Backend,
        search: Service | None = None,
    ) -> None:
        self.config = config
        self.run = run
        self.show = show
        self.store = store
        self.services = services
        self.backend = backend
        self._gateway = gateway
        self._verifier = Verifier(backend)
        self._http = open_http()
        self._keys: list[str] = []
        self.front = [service for service in (gateway, search) if service is not None]
        """The services that agents reach."""
        self._search: SearchAt | None = None
        self._foreign = ForeignEngines(config.engine)
        self.poll_s = POLL_S
        if search is not None:
            self._search = SearchAt(url=search.url, key=self._key("search", "use"), http=self._http)

    async def stage(self, name: str, schema: type[T], work: Callable[[], Awaitable[T]]) -> T:
        """Return the stage's result: from the run folder if the stage is done, else from doing it."""
        kept = self.run.result(name, schema)
        if kept is not None:
            self.show.say(f"{name}: already done, resumed after it")
            return kept
        started = time.monotonic()
        result = await self.services.guard(work())
        self.run.finish(name, result, time.monotonic() - started)
        return result

    def client(self, user: str, arm: str | None = None) -> GatewayClient:
        """Return a connection under a fresh key of `user`; a key pinned to an arm is ours, not a person's."""
        key = self._key(user, "use,feedback" if arm is None else "admin", arm)
        return GatewayClient(lambda: self._gateway.url, key, http=self._http)

    @property
    def url(self) -> str:
        """The address of the gateway."""
        return self._gateway.url

    @property
    def search_url(self) -> str:
        """The address of the search service; empty where there is none."""
        return "" if self._search is None else self.front[-1].url

    def keys_of_a_sampler(self) -> dict[str, str]:
        """Make the keys of a sampler of practice, by the environment variables that it reads them from."""
        keys = {GATEWAY_KEY: self._key("practice", "admin", "practice")}
        return keys if self._search is None else {**keys, SEARCH_KEY: self._key("search", "use")}

    def key_of_a_person(self) -> str:
        """Make a key of the local user, which outlives this process as every person's does."""
        key = new_key()
        self.store.add_key(hash_key(key), "local")
        return key

    def _key(self, user: str, roles: str, arm: str | None = None) -> str:
        """Make a key that lasts as long as this run is open."""
        key = new_key()
        self._keys.append(hash_key(key))
        self.store.add_key(self._keys[-1], user, roles, arm)
        return key

    def runner(self, client: GatewayClient, profile: str | None = None) -> EpisodeRunner:
        """Return a runner of the run's harness, or of the same limits under another profile."""
        harness = self.config.harness if profile is None else replace(self.config.harness, profile=profile)
        return EpisodeRunner(client, self.backend, self._verifier, harness, search=self._search)

    def put_arm(self, arm: Arm) -> None:
        """Add or replace one arm; the others stay."""
        put_arm(self.store, arm)

    @asynccontextmanager
    async def serving(self, arm: Arm, *, follow: bool = False) -> AsyncIterator[ArmEngines]:
        """Start the engine of `arm`, whose address is filled in, and put the arm; stop the engine at the end.

        The engine serves the arm's version, or with `follow` always the newest one that is published, and
        `engine.standby` others stand by. An arm that serves this version already keeps its share and
        experiment. Where engines are there already (`engine.url`), an engine server of ours stands before
        each of them, or before one that no other arm has.
        """
        version, others = (None, self.config.engine.standby) if follow else (arm.version, 0)
        async with self._foreign.some() as urls:
            settings = [engine_settings(self.config, self.run, version, url) for url in urls]
            settings = settings or [engine_settings(self.config, self.run, version)] * (1 + others)
            names = [f"engine-{arm.name}{f'-{i}' if i else ''}" for i in range(len(settings))]
            started = [await self.engine(*each) for each in zip(names, settings, strict=True)]
            yield ArmEngines(started, lambda *urls: point_arm(self.store, arm, *urls), together=len(urls) > 1)
            for engine in started:
                await self.services.stop(engine)

    async def engine(self, name: str, settings: EngineServerConfig) -> Service:
        """Start an engine server."""
        return await self.services.start(name, "ostinato.engine.server", settings)

    def engines(self, patience_s: float) -> EngineClient:
        """Return a client of this run's engines, past the gateway."""
        return EngineClient(patience_s, self.services.secret)

    async def train(self, name: str, module: str, settings: Any, tick: Callable[[], None]) -> None:
        """Run a trainer, a process of its own, to its end. Raises ServiceError when it fails."""
        await watch(await self.services.start(name, module, settings, keep=False), tick)

    async def counters(self, engine: ArmEngines) -> Counters:
        """Return what the engines of the arm counted since their start; one that died is waited for."""
        while True:
            try:
                each = [await self._get(url + "/stats") for url in engine.urls]
                return {name: sum(counted[name] for counted in each) for name in each[0]}
            except (aiohttp.ClientError, TimeoutError) as error:
                log.warning("an engine does not say what it counted: %s", error)
                await asyncio.sleep(self.poll_s)

    async def _get(self, url: str) -> Any:
        headers = bearer(self.services.secret)
        async with self._http.get(url, headers=headers, timeout=ANSWER_S) as response:
            return await response.json()

    async def aclose(self) -> None:
        """Close the connections, and revoke the keys, which nobody holds any more."""
        await self._http.close()
        self.store.accounts.retire(self._keys)


class ForeignEngines:
    """The engines of `engine.url`: each arm uses all of them, or where one serves a single version, one that
    is free."""

    def __init__(self, config: EnginesConfig) -> None:
        self._all = tuple(dict.fromkeys(config.url))
        self._free: asyncio.Queue[str] | None = asyncio.Queue() if config.in_place else None
        if self._free is not None:
            for url in config.url:
                self._free.put_nowait(url)

    @asynccontextmanager
    async def some(self) -> AsyncIterator[tuple[str, ...]]:
        """Yield the addresses for one arm; () when the run starts its engines. Waits for one to be free."""
        if self._free is None:
            yield self._all
            return
        url = await self._free.get()
        try:
            yield (url,)
        finally:
            self._free.put_nowait(url)


def engine_settings(
    config: RunConfig, run: Run, version: int | None, url: str | None = None
) -> EngineServerConfig:
    """Return the settings of an engine on `version`, before the one at `url`; None follows the newest one.

    Raises ValueError for settings that do not go together.
    """
    engine = config.engine
    if url is not None:
        return EngineServerConfig(
            checkpoint=run.checkpoint(START),
            objects=run.objects,
            follow=version is None,
            version=version,
            backend="remote",
            remote=root_of(url),
            release=engine.release,
            on_release=engine.on_release,
            released=(engine.released or run.directory / "released").resolve(),
            label=run.directory.resolve().name,
            max_len=engine.context,
        )
    return EngineServerConfig(
        checkpoint=run.checkpoint(START),
        objects=run.objects,
        follow=version is None,
        version=version,
        backend=engine.backend,
        dtype=engine.dtype,
        tensor_parallel=engine.tensor_parallel,
        arguments=engine.arguments,
        python=engine.python,
        slots=engine.slots,
        max_len=engine.context,
        draft=engine.draft,
        draft_tokens=engine.draft_tokens,
    )


@asynccontextmanager
async def open_resources(config: RunConfig, run: Run, show: Display) -> AsyncIterator[RunResources]:
    """Open the store, the sandbox backend and the gateway; close them when the block ends."""
    async with contextlib.AsyncExitStack() as stack:
        store = run.open_store()
        placement = open_placement(config.placement, run.directory, local_store=config.store.on_one_machine)
        services = await stack.enter_async_context(Services(run, placement))
        await placement.reserve(standing(config))
        door = GatewayServerConfig(
            store=run.store,
            checkpoint=run.checkpoint(START),
            harness=profile(config.harness.profile).hash,
            host=config.live.host,
            port=config.live.port,
            allowed_hosts=allowed_hosts(config.live),
        )
        gateway = await services.start("gateway", "ostinato.gateway.server", door)
        search = await _search(services, config, run)
        backend = await choose_backend(config.sandbox)
        stack.push_async_callback(backend.aclose)
        resources = RunResources(
            config,
            run,
            show,
            store=store,
            services=services,
            gateway=gateway,
            backend=backend,
            search=search,
        )
        stack.push_async_callback(resources.aclose)
        yield resources


def standing(config: RunConfig) -> list[str]:
    """Return the kinds of the services that work at the same time in practice."""
    search = ["search"] if _shows_search(config) else []
    engines, samplers = ["engine"] * (1 + config.engine.standby), ["sampler"] * config.practice.samplers
    return ["gateway", *search, *engines, "learner", *samplers]


def _shows_search(config: RunConfig) -> bool:
    return any(offer.tool == "semantic_search" for offer in profile(config.harness.profile).offers)


async def _search(services: Services, config: RunConfig, run: Run) -> Service | None:
    """Start the search service beside the gateway, where the profile shows its tool to the model."""
    if not _shows_search(config):
        return None
    settings = SearchConfig(cache=run.store_path.with_name("search.db"), store=run.store)
    return await services.start("search", "ostinato.search.server", settings)


def open_placement(config: PlacementConfig, directory: Path, *, local_store: bool) -> ServicePlacement:
    """Return where the services of the run in `directory` live; `local_store` says that one machine alone
    can open its store.

    Raises PlacementError when Ray is not installed, or no cluster answers.
    """
    if config.kind == "local":
        return LocalPlacement()
    try:
        from ostinato.loop.placement.ray import RayPlacement
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise PlacementError(extras.sentence("ray", "[placement] kind = ray")) from error
    return RayPlacement(config, directory, local_store=local_store)
