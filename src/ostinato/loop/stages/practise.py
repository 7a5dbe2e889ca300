"""Practice by policy gradient: samplers and the learner, each in its own process, at the same time or, in
synchronous runs, in turns."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ostinato.loop.resources import ArmEngines, RunResources
from ostinato.loop.results import Counters, Practised
from ostinato.loop.services import Service, watch
from ostinato.loop.stages.alongside import alongside
from ostinato.loop.stages.learn import last_line, start_learner
from ostinato.loop.stages.sampler import SamplerProcess, totals
from ostinato.store.ledger.account import state_root
from ostinato.store.ledger.leases import end_silent
from ostinato.store.ledger.ledger import Ledger
from ostinato.store.ledger.phases import Phase
from ostinato.store.ledger.slot_rows import SlotState
from ostinato.store.ledger.slots import Slots
from ostinato.types import Arm, State

LIMIT_S = 3600.0
"""Seconds without a version although a batch is there: the steps of large models take minutes."""


class Stalled:
    """Notices that no version came for too long, although `batch` groups were there all the while."""

    def __init__(
        self, batch: int, limit_s: float = LIMIT_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._batch = batch
        self._limit_s = limit_s
        self._clock = clock
        self._version = -1
        self._since = clock()

    def notice(self, version: int, groups: int) -> bool:
        """Return True when the trainer should be started again; then its time begins anew.

        `version` is the newest one, `groups` the number that wait for the trainer or are in its step.
        """
        now = self._clock()
        if version != self._version or groups < self._batch:
            self._version, self._since = version, now
        if now - self._since < self._limit_s:
            return False
        self._since = now
        return True


async def practise(resources: RunResources) -> Practised:
    """Train until the last version is published; the engine swaps each one in as it comes."""
    config = resources.config
    log, versions = resources.run.directory / "learner-practice" / "learner.jsonl", config.refine.versions
    assert versions is not None  # `config.check` has refused anything else
    arm = Arm(name="practice", version=0, share=0.0, engines=())
    async with resources.serving(arm, follow=True) as engine:
        samplers = await _start_samplers(resources, engine)
        steps = replace(config.refine, versions=None)
        learner = await start_learner(resources, "practice", steps, until=versions)
        stalled = Stalled(config.refine.groups)
        with resources.show.stage("practice", total=versions) as bar:

            def tick() -> None:
                version = last_line(log).get("version", 0)
                if stalled.notice(version, _ready(resources)):
                    learner.kill()
                for name in end_silent(resources.store):
                    samplers[name].kill()
                bar.at(version, _progress(resources, list(samplers)))

            async with alongside(_all_done(list(samplers.values()))) as sampling:
                await watch(learner, tick, [sampling])
        return _practised(resources, last_line(log), await resources.counters(engine))


async def _start_samplers(resources: RunResources, engine: ArmEngines) -> dict[str, Service]:
    """Start the samplers, by name. They are started again when the gateway or the engine moves."""
    keys, samplers = resources.keys_of_a_sampler(), dict[str, Service]()
    for number in range(resources.config.practice.samplers):
        settings = SamplerProcess(
            directory=resources.run.directory.resolve(),
            number=number,
            gateway=resources.url,
            engine=engine.url,
            search=resources.search_url,
        )
        samplers[settings.name] = await resources.services.start(
            settings.name, "ostinato.loop.stages.sampler", settings, keep=False, environment=keys
        )

    def redirect() -> None:
        for sampler in samplers.values():
            sampler.change(gateway=resources.url, engine=engine.url, search=resources.search_url)
            sampler.kill()

    for moves in (*resources.front, *engine.engines):
        moves.on_moved.append(redirect)
    return samplers


async def _all_done(samplers: Sequence[Service]) -> None:
    """Wait until every sampler has ended. Raises ServiceError as soon as one fails."""
    waiting = [asyncio.create_task(watch(sampler, lambda: None)) for sampler in samplers]
    try:
        await asyncio.gather(*waiting)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _progress(resources: RunResources, names: Sequence[str]) -> str:
    files = [path for name in names if (path := totals(resources.run, name)).exists()]
    written = [json.loads(path.read_text()) for path in files]
    recent = [share for each in written for share in each["recent"]]
    rate = sum(recent) / max(1, len(recent))
    return f"{sum(each['groups'] for each in written)} groups, {rate:.0%} solved of the latest"


def _ready(resources: RunResources) -> int:
    """Return the number of groups that the trainer could be working on."""
    phases = Slots(resources.store).phases()
    return phases[Phase.OFFERED] + phases[Phase.CLAIMED]


def _practised(resources: RunResources, line: Mapping[str, Any], engine: Counters) -> Practised:
    """Close the ledger, and return what came of practice, read from the rows of all processes that worked."""
    ledger = Ledger(resources.store)
    ledger.close_out()
    slots = Slots(resources.store)
    return Practised(
        version=line["version"],
        sessions=slots.entered()[SlotState.FINISHED],
        void=slots.tried_again(),
        untrainable=ledger.states()[State.UNTRAINABLE],
        root=state_root(resources.store, line["weights"]),
        engine=engine,
    )
