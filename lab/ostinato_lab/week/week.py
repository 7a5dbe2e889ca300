"""A simulated week: the shipped cycle, thirty times over, in the minutes that its arithmetic takes.

::

    Simulation ─► sessions and signals in the Store ─► cycles, trials beside them ─► versions ─► Simulation …
                                                                                  │
    what its people think ─────────────────────────────────────────► report ◄─────┘

The folder is a run folder, and the same command goes on after a kill. What nobody but the report may know
is kept nowhere: it is computed again from the seed and the record.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from ostinato.config import load
from ostinato.loop.config import RunConfig
from ostinato.loop.cycle import cycles
from ostinato.loop.folder import refuse_earlier_form
from ostinato.loop.live_config import live_definition
from ostinato.loop.people import PeopleTraffic
from ostinato.loop.results import Champion, Cycled, Measured, Published, Tried, Turned
from ostinato.loop.run import START, Run
from ostinato.loop.stages.learn import publish
from ostinato.loop.stages.measure import measure
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Ledger, Store
from ostinato.store.sql import schema
from ostinato.types import Session, Source
from ostinato_lab.week.acts import STRATA, Vocabulary
from ostinato_lab.week.base import Population
from ostinato_lab.week.clock import run_virtually
from ostinato_lab.week.policy import Policies, write_start
from ostinato_lab.week.populations import POPULATIONS, Shuffled
from ostinato_lab.week.resources import WeekResources, held_out_tasks
from ostinato_lab.week.simulation import Served, Simulation, tick_of

SETTINGS = Path(__file__).with_name("week.toml")
SHUFFLED_REWARD = Path(__file__).with_name("shuffled.toml")
"""The reward that ships, without the prices of what stands in the turns themselves, which cannot be
shuffled."""
BEGAN = 1_800_000_000.0
"""The first moment of every week, in seconds since the epoch: a Friday in January 2027."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekPlan:
    """The size of a week, and who lives in it.

    >>> WeekPlan(cycles=3).developers
    240
    """

    cycles: int = 30
    seed: int = 1
    developers: int = 240
    adversaries: float = 0.05
    tasks: int = 600
    """The held-out tasks of gates and hold-out."""
    overrides: tuple[str, ...] = ()
    """Settings of the run, as `live.versions=2`."""
    population: str = "developers"
    """The kind of people: `developers`, or `independent` ones, written for real trees."""
    shuffled: bool = False
    """True for the null, in which each session shows the reactions of another one, and nothing that
    the reward reads from the session itself weighs anything."""

    def people(self) -> Population:
        """Return the developers, each time anew: a population is asked about each session once."""
        population = POPULATIONS[self.population](self.developers, self.seed, self.adversaries)
        return Shuffled(population, self.seed) if self.shuffled else population


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """The outcome of a week: its cycles, and each session in the eyes of its developer."""

    plan: WeekPlan
    cycles: tuple[Cycled, ...]
    trials: tuple[Tried, ...]
    served: tuple[Served, ...]
    first: int
    """The version that was served at its beginning."""
    last: int
    """The version that is served at its end."""


class WeekTraffic(PeopleTraffic):
    """The simulated sessions: they come by themselves, as those of people do."""

    def strata(self, sessions: Sequence[Session]) -> dict[str, str]:
        return {stratum: stratum for stratum in STRATA}


def settings(plan: WeekPlan) -> RunConfig:
    """Return the settings of a week."""
    config = load(RunConfig, SETTINGS, [f"seed={plan.seed}", *plan.overrides])
    if not plan.shuffled:
        return config
    return replace(config, live=replace(config.live, reward=SHUFFLED_REWARD))


def open_policies(run: Run) -> Policies:
    """Return the policies of the versions in a run folder."""
    tokenizer = Tokenizer.load(run.checkpoint(START))
    return Policies(run.open_objects(), Vocabulary.of(tokenizer))


def run_week(
    directory: Path, plan: WeekPlan, show: Any = None, *, opened: type[WeekResources] = WeekResources
) -> Week:
    """Run a week in that folder to its end, or go on with it; `opened` holds the resources of its cycles."""
    run, config = Run(directory=directory), settings(plan)
    refuse_earlier_form(run)
    write_start(run.checkpoint(START))
    run.objects_path.mkdir(parents=True, exist_ok=True)
    with closing(run.open_store()) as store:
        start = max(BEGAN, _last_moment(store))

    async def main(now: Callable[[], float]) -> Week:
        with closing(Store.open(run.store, now)) as store:
            resources = opened(config, run, store, open_policies(run), show)
            return await _live(resources, plan)

    return run_virtually(start, main)


async def _live(resources: WeekResources, plan: WeekPlan) -> Week:
    """Let people work while the cycles run."""
    simulation = Simulation(resources.store, resources.policies, plan.people(), seed=plan.seed, began=BEGAN)
    await resources.stage("publish", Published, lambda: publish(resources))
    simulation.restore()
    living = asyncio.create_task(simulation.run())
    turning = asyncio.create_task(_run_cycles(resources, plan))
    try:
        await asyncio.wait({living, turning}, return_when=asyncio.FIRST_COMPLETED)
        if living.done():
            living.result()
        turned = turning.result()
        return Week(
            plan=plan,
            cycles=turned.cycles,
            trials=turned.trials,
            served=tuple(simulation.served),
            first=0,
            last=turned.served.version,
        )
    finally:
        for task in (living, turning):
            task.cancel()
        await asyncio.gather(living, turning, return_exceptions=True)


async def _run_cycles(resources: WeekResources, plan: WeekPlan) -> Turned:
    tasks, passes = held_out_tasks(STRATA, plan.tasks), resources.config.bench.passes
    Ledger(resources.store).hold_out(task.key for task in tasks)
    after = await resources.stage("after", Measured, lambda: measure(resources, 0, tasks, passes=passes))
    definition = live_definition(resources.config.live)
    tokenizer = Tokenizer.load(resources.run.checkpoint(START))
    traffic = WeekTraffic(
        resources.store,
        tokenizer,
        resources.show,
        definition=definition,
        now=resources.store.now,
        poll_s=resources.poll_s,
        oldest_s=resources.config.live.oldest_s,
    )
    return await cycles(resources, traffic, Champion(version=0, measured=after), tasks, plan.cycles)


def _last_moment(store: Store) -> float:
    """Return the last moment of an earlier process: that of its newest row; 0.0 before the first.

    What people did is recorded by the tick after it. A clock that began before that tick would let the cycle
    look once more at a moment when all of it was not known yet.
    """
    rows = schema.cycle_log.c.at, schema.releases.c.at, schema.sessions.c.started_at
    live = select(func.max(schema.sessions.c.started_at)).where(schema.sessions.c.source == Source.LIVE.value)
    facts = live, select(func.max(schema.signals.c.observed_at))
    with store.database.read() as connection:
        moments = [connection.scalar(select(func.max(column))) for column in rows]
        ticks = [None if at is None else tick_of(at) for at in map(connection.scalar, facts)]
    return max((at for at in (*moments, *ticks) if at is not None), default=0.0)
