"""Everything a run works with, opened together and closed together: store, gateway, engines, sandboxes,
keys.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from ostinato.fleet.choose import choose_backend
from ostinato.harness.client import GatewayClient, open_http
from ostinato.harness.episode import EpisodeRunner
from ostinato.harness.profiles.profile import profile
from ostinato.harness.providers.search import SearchAt
from ostinato.loop.config import DemoConfig
from ostinato.loop.run import Run
from ostinato.loop.services import Service, Services
from ostinato.loop.show import Show
from ostinato.rollout.live import Seat
from ostinato.sandbox.base import Backend
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.store import Store
from ostinato.store.accounts import hash_key, new_key
from ostinato.tasks.developers import Developer
from ostinato.types import Arm
from ostinato.web.secret import bearer

Result = dict[str, Any]

START = "start"
"""The checkpoint every engine and trainer begins from: config, tokenizer and random weights."""


class Workshop:
    """One run's open resources. The gateway is up; engines are started by the stage that needs them."""

    def __init__(
        self,
        config: DemoConfig,
        run: Run,
        show: Show,
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
        self._search: SearchAt | None = None
        if search is not None:
            self._search = SearchAt(url=search.url, key=self._key("search", "use"), http=self._http)

    async def stage(self, name: str, work: Callable[[], Awaitable[Result]]) -> Result:
        """The stage's result: from the run folder if it is done, else from doing it."""
        done = self.run.stage(name)
        if done is not None:
            self.show.say(f"{name}: already done, resumed after it")
            return done
        started = time.monotonic()
        result = await self.services.guard(work())
        result["seconds"] = round(time.monotonic() - started, 1)
        self.run.finish_stage(name, result)
        return result

    def client(self, user: str, arm: str | None = None) -> GatewayClient:
        """A connection under a fresh key of `user`; one pinned to an arm is ours, not a person's."""
        key = self._key(user, "use,feedback" if arm is None else "admin", arm)
        return GatewayClient(self._gateway.url, key, http=self._http)

    def _key(self, user: str, roles: str, arm: str | None = None) -> str:
        """Make a key that lasts as long as this run is open."""
        key = new_key()
        self._keys.append(hash_key(key))
        self.store.add_key(self._keys[-1], user, roles, arm)
        return key

    def seats(self, developers: Sequence[Developer]) -> list[Seat]:
        """Each under a key of their own; simulated people agree to training."""
        for each in developers:
            self.store.accounts.set_consent(user=each.user, granted=True, by="simulation")
        return [Seat(developer=each, client=self.client(each.user)) for each in developers]

    def runner(self, client: GatewayClient) -> EpisodeRunner:
        return EpisodeRunner(client, self.backend, self._verifier, self.config.harness, search=self._search)

    def put_arm(self, arm: Arm) -> None:
        """Adds or replaces one arm, the others stay."""
        others = [each for each in self.store.arms() if each.name != arm.name]
        self.store.set_arms([*others, arm])

    async def engine(self, name: str, *version: str) -> Service:
        """An engine process; `version` is `--follow` or `--version N`."""
        checkpoint = self.run.checkpoint(START)
        return await self.services.start(
            name,
            "ostinato.engine.server",
            [
                *("--checkpoint", str(checkpoint), "--objects", str(self.run.objects_path), "--port", "0"),
                *("--slots", str(self.config.slots), "--max-len", str(self.config.context), *version),
            ],
        )

    async def stats(self, engine: Service) -> dict[str, int]:
        """The engine's counters."""
        async with (
            aiohttp.ClientSession() as http,
            http.get(engine.url + "/stats", headers=bearer(self.services.secret)) as answer,
        ):
            counters: dict[str, int] = await answer.json()
        return counters

    async def aclose(self) -> None:
        """Close the connections and revoke the keys: nobody holds them any more."""
        await self._http.close()
        self.store.accounts.retire(self._keys)


@asynccontextmanager
async def open_workshop(config: DemoConfig, run: Run, show: Show) -> AsyncIterator[Workshop]:
    """Opens the store, the sandbox backend and the gateway."""
    async with contextlib.AsyncExitStack() as stack:
        store = run.open_store()
        services = await stack.enter_async_context(Services(run.logs))
        gateway = await services.start(
            "gateway",
            "ostinato.gateway.server",
            ["--store", str(run.store_path), "--checkpoint", str(run.checkpoint(START)), "--port", "0"],
        )
        search = await _search(services, config, run)
        backend = await choose_backend(config.sandbox)
        stack.push_async_callback(backend.aclose)
        workshop = Workshop(
            config,
            run,
            show,
            store=store,
            services=services,
            gateway=gateway,
            backend=backend,
            search=search,
        )
        stack.push_async_callback(workshop.aclose)
        yield workshop


async def _search(services: Services, config: DemoConfig, run: Run) -> Service | None:
    """The search service beside the gateway, where the profile shows its tool to the model."""
    if all(offer.tool != "semantic_search" for offer in profile(config.harness.profile).offers):
        return None
    cache = run.store_path.with_name("search.db")
    told = ("--cache", str(cache), "--store", str(run.store_path), "--port", "0")
    return await services.start("search", "ostinato", ["search", "serve", *told])
