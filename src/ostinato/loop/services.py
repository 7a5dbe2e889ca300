"""Services: started where the placement finds room, watched, started again when they die, stopped.

A service is a `python -m` module that reads its settings from its own table of the run's `processes.toml`,
and prints one JSON line when it is ready. It keeps its port over a restart on the same host, so that its
clients only have to retry; where its host was lost it moves, and says so. Secrets are in the environment,
never in the file.
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from ostinato.engine.config import REMOTE_KEY
from ostinato.extend import INHERITED
from ostinato.loop.placement.base import LOOPBACK, Place, PlacementError, ServiceCommand, ServicePlacement
from ostinato.loop.placement.config import KINDS
from ostinato.loop.placement.local import LocalPlacement
from ostinato.loop.run import Run, SettingsFile
from ostinato.store.config import PASSWORD
from ostinato.web.secret import ENGINE_SECRET, new_secret

log = logging.getLogger(__name__)
T = TypeVar("T")
READY_TIMEOUT_S = 600.0
"""A service that dies says so at once; a vLLM compiles and loads for minutes."""
ENDING_TIMEOUT_S = 1.0
"""Seconds that a service which closed its output may still take to end."""
WRONG = 2
"""The exit status of a service with wrong settings, such as a port in use."""
MAX_RESTARTS, RESTARTS_WITHIN_S = 5, 600.0
"""A service that dies more often than this within the time is given up; deaths of long ago do not count."""
HEALTH_S, ANSWER_S, MOST_SILENT = 10.0, 30.0, 4
"""Seconds between two questions to a service, seconds that an answer may take, and questions without one
after which it is taken to hang: minutes in all, since a busy machine is no hanging one."""
ANYWHERE = ("", LOOPBACK, "0.0.0.0")  # noqa: S104 - settings of `host` that name no place
PAUSE_S = 1.0  # between a start that failed and the next attempt
KNOWN_TO_ENGINES = {"engine", "gateway", "sampler"}
"""The kinds of services that get the secret of the run's engines."""
USE_THE_RECORD = {"gateway", "search", "sampler", "learner"}
"""The kinds of services that get the password of the record's database."""
USE_THE_OBJECTS = {"engine", "learner"}
"""The kinds of services that get the credentials of the bucket with the run's weights."""
OF_CLOUDS = ("AWS_", "GOOGLE_", "AZURE_")
"""How the names of variables begin in which buckets have their addresses and credentials."""
NOTHING: Mapping[str, str] = {}


class ServiceError(RuntimeError):
    """A process did not start, or died more often than it may."""


class Service:
    """One process under watch; `restarts` counts how often it had to be started again.

    `ready` is the JSON object it printed, `{}` for a service that is waited for by `finished` instead.
    """

    def __init__(
        self,
        name: str,
        module: str,
        settings: SettingsFile,
        logs: Path,
        placement: ServicePlacement,
        *,
        keep: bool = True,
        environment: Mapping[str, str] | None = None,
        on_given_up: Callable[[ServiceError], None] = lambda _: None,
        most_restarts: float = MAX_RESTARTS,
    ) -> None:
        self.name = name
        self.restarts = 0
        self.ready: Mapping[str, Any] = {}
        self.up = False
        """False from its death, or from the end of a service that hung, until it is ready again."""
        self.on_change: list[Callable[[], None]] = []
        """Called when it is no longer up, and when it is up again."""
        self.on_moved: list[Callable[[], None]] = []
        """Called after a restart on another host, where the service has another `url`."""
        self._settings = settings
        self._log = logs / f"{name}.log"
        self._keep, self._on_given_up = keep, on_given_up
        self._command = ServiceCommand(
            arguments=("-m", module, "--config", str(settings.path), "--table", name),
            log=self._log,
            environment={"OMP_NUM_THREADS": "1", **(environment or {})},
            speaks=keep,
        )
        self._placement = placement
        self._kind = KINDS.get(module, module)
        self._port, self._listens = settings.address(name)
        self._most_restarts = most_restarts
        self._found: Place | None = None
        self._host = ""
        self._watcher: asyncio.Task[None] | None = None
        self._stopping = False
        self._deaths: list[float] = []

    @property
    def _place(self) -> Place:
        if self._found is None:
            raise ServiceError(f"{self.name} has not been started")
        return self._found

    @property
    def pid(self) -> int:
        """The id of its process, on its host."""
        return self._place.pid

    @property
    def host(self) -> str:
        """The address of its host, and of the last one while another is looked for."""
        return self._host or self._place.host

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.ready['port']}"

    async def start(self) -> "Service":
        """Start it. Raises PlacementError when no place could ever be found for it."""
        await self._placement.reserve([self._kind])
        await self._spawn()
        self.up = True
        if self._keep:
            self._watcher = asyncio.create_task(self._watch())
        return self

    async def finished(self) -> int:
        """Wait until it ends by itself, and return its exit status; a killed one is started again."""
        while (status := await self._ended_or_silent()) < 0 and not self._stopping:
            await self._restart(status)
        if not self._stopping:
            place, self._found = self._place, None
            await place.leave()
        return status

    def change(self, **settings: Any) -> None:
        """Change settings that it reads when it is started again."""
        self._settings.change(self.name, **settings)

    def tail(self) -> str:
        """Return the end of its log."""
        return self._log.read_text(errors="replace")[-800:]

    async def stop(self) -> None:
        self._stopping = True
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        if self._found is not None:
            await self._found.stop()
            await self._found.leave()

    async def _spawn(self) -> None:
        """Start the process where it was, or on another host when that one is lost."""
        if self._found is not None and not await self._found.answers(ANSWER_S):
            await self._found.leave()
            self._found = None
        if self._found is None:
            self._found = await self._placement.find(self.name, self._kind)
            self._host = self._found.host if self._listens in ANYWHERE else self._listens
            host = self.host if self._listens in ("", LOOPBACK) else self._listens
            self._settings.change(self.name, host=host, port=self._port)
        await self._found.start(self._command)
        if self._keep:
            self.ready = await self._ready_line()
        if "port" in self.ready:
            self._settings.change(self.name, port=self.ready["port"])

    async def _ready_line(self) -> Mapping[str, Any]:
        try:
            ready: dict[str, Any] = json.loads(await asyncio.wait_for(self._place.line(), READY_TIMEOUT_S))
        except (TimeoutError, ValueError) as error:
            raise await self._not_ready() from error
        return ready

    async def _not_ready(self) -> ServiceError:
        """Return the reason for which a service did not start, once it has ended.

        A service that was started wrongly, on a port in use for instance, says so in its last line and ends
        with status 2. For anything else the reason is the end of its log.
        """
        ending = asyncio.ensure_future(self._place.ended())
        if not (await asyncio.wait([ending], timeout=ENDING_TIMEOUT_S))[0]:
            self._place.kill()
        if await ending == WRONG and (last := self.tail().strip().splitlines()[-1:]):
            return ServiceError(f"{self.name} did not start: {last[0]}")
        return ServiceError(f"{self.name} did not get ready; its log ends:\n{self.tail()}")

    async def _watch(self) -> None:
        try:
            while True:
                status = await self._ended_or_silent()
                if self._stopping:
                    return
                await self._restart(status)
        except ServiceError as error:
            self._on_given_up(error)
        except Exception as error:  # whoever waits for the service would wait for ever
            log.exception("%s is watched no longer", self.name)
            self._on_given_up(ServiceError(f"{self.name} was not started again: {error!r}"))

    async def _ended_or_silent(self) -> int:
        """Return the exit status of a service that ended; one that stays silent is ended first."""
        silent = 0
        while silent < MOST_SILENT:
            ended = asyncio.ensure_future(self._place.ended())
            try:
                done, _ = await asyncio.wait([ended], timeout=HEALTH_S)
            finally:
                ended.cancel()
            if done:
                return ended.result()
            silent = 0 if await self._answers() else silent + 1
        log.warning("%s did not answer %d times and is started again", self.name, silent)
        self.kill()
        return await self._place.ended()

    async def _answers(self) -> bool:
        """Return whether the service answers at all, whatever it says; without a port, its host must."""
        if not await self._place.answers(ANSWER_S):
            return False
        if "port" not in self.ready:
            return True
        timeout, health = aiohttp.ClientTimeout(total=ANSWER_S), f"{self.url}/healthz"
        try:
            async with aiohttp.ClientSession(timeout=timeout) as http, http.get(health) as response:
                await response.read()
        except (aiohttp.ClientError, TimeoutError):
            return False
        return True

    def kill(self) -> None:
        """End the process at once, if there is one; whoever waits for it starts it again."""
        if self._found is not None:
            self._found.kill()

    async def _restart(self, status: int) -> None:
        """Start it again.

        An attempt that fails, on a port that is taken for a moment for instance, counts as one more death.
        """
        reason, host = f"last with status {status}: see {self._log}", self.host
        self._tell(up=False)
        while True:
            self._count_a_death(reason)
            try:
                await self._spawn()
                break
            except (ServiceError, PlacementError) as error:
                reason = str(error)
                await asyncio.sleep(PAUSE_S)
        self._tell(up=True)
        if self.host != host:
            log.warning("%s moved from %s to %s", self.name, host, self.host)
            for call in self.on_moved:
                call()

    def _tell(self, *, up: bool) -> None:
        self.up = up
        for call in self.on_change:
            call()

    def _count_a_death(self, reason: str) -> None:
        self.restarts += 1
        now = time.monotonic()
        self._deaths = [*(each for each in self._deaths if each > now - RESTARTS_WITHIN_S), now]
        if len(self._deaths) > self._most_restarts:
            within = f"{len(self._deaths)} times within {RESTARTS_WITHIN_S / 60:.0f} minutes"
            raise ServiceError(f"{self.name} died {within}, {reason}")


async def watch(
    service: Service, tick: Callable[[], None], beside: Sequence[asyncio.Task[None]] = ()
) -> None:
    """Call `tick` twice a second until a finite service ends.

    Raises ServiceError unless its exit status is 0. An error of a task `beside` it is raised at once.
    """
    ending = asyncio.create_task(service.finished())
    try:
        while not ending.done():
            await asyncio.wait([ending], timeout=0.5)
            for task in beside:
                if task.done():
                    task.result()
            tick()
    finally:  # whoever stops the service after an error must not race with a watch that starts it again
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
    if status := ending.result():
        raise ServiceError(
            f"{service.name} ended with status {status}; the end of its log:\n{service.tail()}"
        )


class Services:
    """The services of a run, stopped together in reverse order; then the placement is closed.

    >>> async with Services(Run(directory=Path("runs/demo"))) as services:          # doctest: +SKIP
    ...     engine = await services.start("engine", "ostinato.engine.server", EngineServerConfig(...))
    """

    def __init__(self, run: Run, placement: ServicePlacement | None = None) -> None:
        run.logs.mkdir(parents=True, exist_ok=True)
        self._logs, self._placement = run.logs, placement or LocalPlacement()
        self._settings = SettingsFile(run.processes)
        self._running: list[Service] = []
        self._given_up: asyncio.Future[ServiceError] = asyncio.get_running_loop().create_future()
        self.most_restarts: float = MAX_RESTARTS
        self.secret = os.environ.get(ENGINE_SECRET) or new_secret()
        """The secret of these engines' callers; that of a gateway above stands in the environment."""

    async def __aenter__(self) -> "Services":
        return self

    async def __aexit__(self, *_: object) -> None:
        for service in reversed(self._running):
            await service.stop()
        await self._placement.aclose()

    @property
    def here(self) -> str:
        """The address at which services reach this process."""
        return self._placement.here

    async def start(
        self,
        name: str,
        module: str,
        settings: Any,
        *,
        keep: bool = True,
        beside: bool = False,
        environment: Mapping[str, str] = NOTHING,
    ) -> Service:
        """Start `python -m module` with `settings`, a dataclass, in the table `name`.

        With `keep`, wait for its ready line and restart it when it dies. With `beside` it runs on the host of
        this process, whatever the placement. `environment` is for secrets.
        """
        self._settings.put(name, settings)
        service = Service(
            name,
            module,
            self._settings,
            self._logs,
            LocalPlacement(self.here) if beside else self._placement,
            keep=keep,
            environment={**environment, **self._secrets(KINDS.get(module, module))},
            on_given_up=self._give_up,
            most_restarts=self.most_restarts,
        )
        self._running.append(service)
        try:
            return await service.start()
        except ServiceError:
            self._running.remove(service)  # it has ended
            raise

    def _secrets(self, kind: str) -> dict[str, str]:
        secrets = {ENGINE_SECRET: self.secret} if kind in KNOWN_TO_ENGINES else {}
        needed = {INHERITED, PASSWORD if kind in USE_THE_RECORD else REMOTE_KEY if kind == "engine" else ""}
        secrets |= {name: os.environ[name] for name in needed if name in os.environ}
        if kind in USE_THE_OBJECTS:
            secrets |= {name: value for name, value in os.environ.items() if name.startswith(OF_CLOUDS)}
        return secrets

    def _give_up(self, error: ServiceError) -> None:
        if not self._given_up.done():
            self._given_up.set_result(error)

    async def guard(self, work: Awaitable[T]) -> T:
        """Do `work`; raise ServiceError as soon as a service is given up, since the work may wait for it."""
        task = asyncio.ensure_future(work)
        waited: tuple[asyncio.Future[Any], ...] = (task, self._given_up)
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise self._given_up.result()
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def stop(self, service: Service) -> None:
        self._running.remove(service)
        await service.stop()

    @property
    def restarts(self) -> int:
        return sum(service.restarts for service in self._running)
