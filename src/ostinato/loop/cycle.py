"""The cycle on live traffic, pipelined: collect → reward → train → gate, and a trial with people beside it.

A cycle ends with the gate's decision. An admitted candidate goes to the front (`beside/`), where the newest
waits until the trial under way is over; meanwhile the next cycle collects, trains and gates. Each candidate
is trained on the champion, and gated against it: nothing is learnt on top of weights that people rejected.
"""

import asyncio
import math
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from functools import partial

from ostinato.deploy.budget import BudgetRule, level_of
from ostinato.deploy.gate import ALPHA, gate
from ostinato.deploy.terms import BETTER, SUITE
from ostinato.deploy.traffic import named
from ostinato.loop.base import LiveTraffic, Resources
from ostinato.loop.beside.front import cycle_name, trial_name
from ostinato.loop.beside.served import ServedChampion
from ostinato.loop.beside.trials import Trials
from ostinato.loop.fidelity.differences import differences, held_for
from ostinato.loop.live_config import ARMS, CHAMPION, live_definition
from ostinato.loop.release import until
from ostinato.loop.results import (
    Admission,
    Base,
    Began,
    Champion,
    Cycled,
    Deployed,
    Judged,
    Lived,
    Measured,
    Published,
    Turned,
)
from ostinato.loop.stages.alongside import both
from ostinato.loop.stages.follow_ups import read_follow_ups
from ostinato.loop.stages.hold_out import account_held_out, holding_out
from ostinato.loop.stages.learn import refine, restore
from ostinato.loop.stages.logged import LoggedStages
from ostinato.loop.stages.measure import HeldOutTasks, measure
from ostinato.loop.stages.suite import suite_of
from ostinato.loop.stages.watch import drifts_of
from ostinato.loop.suites.looks import look_of
from ostinato.loop.trial import compare_held_out
from ostinato.rollout.collect import PAGE, Collector, Harvest, uncollected
from ostinato.store.cycle_log import CycleAction
from ostinato.store.pages import ended_sessions
from ostinato.types import Arm, Ending, Task

AFTER_COLLECTION = ("collect", "base", "refine", "champion", "gate", "admission")
"""The stages between the end of a collection's wait and the gate's decision."""
FIRST_WORK, MORE_WORK = 0.2, 1.05
"""The part of the time between two cycles that the first one keeps for these stages; the others keep a little
more than they ever took."""


async def cycles(
    resources: Resources, traffic: LiveTraffic, champion: Champion, tasks: Sequence[Task], count: int
) -> Turned:
    """Run `count` cycles one after another, and the trials of their candidates beside them, to the last one.

    `tasks` are held out. The champion was measured on all of them, in `bench.passes` passes.
    """
    held_out, done = HeldOutTasks(resources, tasks, champion), list[Cycled]()
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(ServedChampion(resources))
        trials = Trials(resources, traffic, held_out, served)
        await trials.begin()
        arm = Arm(name=CHAMPION, version=served.version or 0, share=0.0, engines=())
        await stack.enter_async_context(holding_out(resources, arm))

        async def turn() -> Deployed:
            while len(done) < count:
                done.append(await Cycle(resources, traffic, held_out, trials, done).result())
                trials.stir()
            trials.end()
            return await resources.stage(f"trials-after-{cycle_name(count)}", Deployed, trials.over)

        ended = await both(turn(), trials.run())
    return Turned(cycles=tuple(done), trials=tuple(trials.done()), served=ended)


class Cycle:
    """One cycle after those of `earlier`; its stages are kept in the run folder under its name."""

    def __init__(
        self,
        resources: Resources,
        traffic: LiveTraffic,
        tasks: HeldOutTasks,
        trials: Trials,
        earlier: Sequence[Cycled],
    ) -> None:
        self._resources = resources
        self._traffic = traffic
        self._tasks = tasks
        self._trials = trials
        self._earlier = earlier
        self._since = earlier[-1].ended_at if earlier else 0.0
        self._stages = LoggedStages(resources, cycle_name(len(earlier) + 1))

    async def result(self) -> Cycled:
        """Return the result: from the run folder if the cycle is done, else from running it."""
        done = await self._resources.stage(self._stages.name, Cycled, self._run)
        self._stages.control.log_once(CycleAction.CYCLE_DONE, f"{done.decision.value}: {done.reason}")
        return done

    async def _run(self) -> Cycled:
        """Run the cycle from live sessions to the gate's decision; whoever is served is served on."""
        stages, resources = self._stages, self._resources
        began = await stages.done("began", Began, self._begin)
        lived = await stages.done("live", Lived, lambda: self._live(began))
        collected = await stages.done("collect", Harvest, self._collect)
        promotions = compare_held_out(resources, self._traffic.clock())
        if promotions is not None:
            resources.show.say(f"hold-out: {promotions}")
        base = await stages.done("base", Base, self._base)
        trained = await stages.done("refine", Published, lambda: refine(resources, base.version))
        judged, refused = None, ""
        if trained.version == base.version:
            resources.show.say("no session could be learnt from: there is no candidate")
        else:
            judged = await self._judge(base.champion, trained.version)
        if judged is not None and (word := stages.control.word()) is not None:
            refused = f"{word.by} said {word.action.value}: the candidate meets nobody"
            resources.show.say(refused)
        account_held_out(resources.store)
        return Cycled(
            began_at=began.at,
            lived=lived,
            collected=collected,
            base=base,
            candidate=trained.version,
            judged=judged,
            refused=refused,
            hold_out="" if promotions is None else str(promotions),
            ended_at=resources.store.now(),
        )

    async def _begin(self) -> Began:
        """Begin no sooner after the cycle before than the schedule says.

        That one began in the future if the clock was put back since; then a whole time between two is waited.
        """
        store = self._resources.store
        if self._earlier:
            before = min(self._earlier[-1].began_at, store.now())
            await until(store, before + self._resources.config.schedule.every_s)
        return Began(at=store.now())

    async def _live(self, began: Began) -> Lived:
        """Let people work until enough sessions can be learnt from, or until training has to begin."""
        every_s, wanted = self._resources.config.schedule.every_s, self._resources.config.live.sessions
        closes_at = began.at + every_s - self._work_s() if every_s else math.inf
        await self._traffic.arrive("live", self._since, wanted, closes_at=closes_at)
        store, sessions, signals = self._resources.store, 0, 0
        for page in ended_sessions(store, ARMS, PAGE, since=self._since):
            ours = [each.id for each in page if each.ending is not Ending.INFRASTRUCTURE]
            sessions, signals = sessions + len(ours), signals + sum(map(len, store.signals_of(ours).values()))
        return Lived(sessions=sessions, signals=signals)

    def _work_s(self) -> float:
        """Return the time to keep for training and the gate."""
        seconds = self._resources.run.seconds()
        took = [
            sum(seconds.get(f"{cycle_name(number)}/{stage}", 0.0) for stage in AFTER_COLLECTION)
            for number in range(1, 1 + len(self._earlier))
        ]
        first = FIRST_WORK * self._resources.config.schedule.every_s
        return MORE_WORK * max(took) if took else first

    async def _collect(self) -> Harvest:
        """Turn the live sessions of both arms, each as it is old enough, into rewards and groups of one."""
        store, live, unheard = self._resources.store, self._resources.config.live, set[str]()
        for some in uncollected(store, ARMS):
            unheard |= await read_follow_ups(self._resources, list(some))
        for drift in drifts_of(self._resources, CHAMPION, self._since, self._traffic.clock()):
            way = "rises" if drift.rises else "falls"
            detail = f"{drift.behaviour} {way} from session {drift.began} on"
            self._stages.control.log(CycleAction.ALARM, detail)
        collector = Collector(store, live_definition(live), live.person_share, oldest_s=live.oldest_s)
        strata_of, as_of = self._traffic.strata, self._traffic.clock()
        harvest = collector.harvest(ARMS, strata_of, as_of=as_of, unheard=unheard)
        self._resources.show.say(harvest.line)
        return harvest

    async def _base(self) -> Base:
        """Let training begin with the weights of the champion of now."""
        champion = self._trials.front.champion
        return Base(champion=champion, version=(await restore(self._resources, champion)).version)

    async def _judge(self, champion: int, candidate: int) -> Judged:
        """Measure the candidate beside the champion on the tasks of this gate, and decide."""
        resources, tasks = self._resources, self._tasks.of_gate(self._stages.name)
        passes, current = resources.config.bench.passes, self._measured(champion)
        if not self._tasks.is_known(self._stages.name):
            work = partial(measure, resources, champion, tasks, passes=passes)
            current = await self._stages.done("champion", Measured, work)
        work = partial(measure, resources, candidate, tasks, passes=passes)
        benched = await self._stages.done("gate", Measured, work)
        admitting = partial(self._admit, champion, current, benched)
        return Judged(benched=benched, admission=await self._stages.done("admission", Admission, admitting))

    def _measured(self, champion: int) -> Measured:
        """Return what the champion did at its own gate, or before the first cycle."""
        own = [cycle.judged for cycle in self._earlier if cycle.candidate == champion and cycle.judged]
        return own[-1].benched if own else self._tasks.first.measured

    async def _admit(self, champion: int, current: Measured, benched: Measured) -> Admission:
        """Decide whether the candidate may meet users, from the same tasks done by the champion (`current`),
        and the suite; what recorded sessions say of it stands beside, and decides nothing. Nobody is admitted
        while people are served otherwise than the run's file names.

        The A/B test's id is settled here, before any of its sessions, and its error level too where the gate
        is a part of it. A version is judged once in its chain, so its number names the trial, and a cycle
        that is killed here and goes on finds its own verdict.
        """
        resources, live = self._resources, self._resources.config.live
        candidate, claim = benched.measurement.report.version, live.claim
        experiment = named(trial_name(candidate), live.assign)
        alpha, chain = level_of(resources.store, candidate, BudgetRule(live.budget))
        rests = claim != BETTER  # what is promoted as no worse is so by this gate too
        verdict = gate(
            current.measurement,
            benched.measurement,
            margin=live.gate_margin if claim in (BETTER, SUITE) else live.cheaper_solve_margin,
            alpha=alpha if rests else ALPHA,
            experiment=experiment if rests else None,
            chain=chain,
            suite=await suite_of(resources, champion, candidate),
            surpass=claim == SUITE,
        )
        verdict = held_for(verdict, differences(resources.config, resources.store, now=self._traffic.clock()))
        if (seen := await asyncio.to_thread(look_of, resources, candidate, self._since)) is not None:
            verdict = replace(
                verdict,
                reason=f"{verdict.reason}\nlook, which decides nothing: {seen.words}",
                evidence={**verdict.evidence, "look": asdict(seen)},
            )
        id_ = f"gate-of-{candidate}"
        resources.store.add_verdict(replace(verdict, id=id_))
        kept = next(each for each in resources.store.verdicts(candidate) if each.id == id_)
        resources.show.say(f"gate: {kept.decision} ({kept.reason})")
        return Admission(
            decision=kept.decision,
            reason=kept.reason,
            experiment=kept.evidence.get("experiment", experiment),
        )
