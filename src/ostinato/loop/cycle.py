"""The cycle on live traffic: collect → reward → train → bench → gate → shadow → canary → A/B → verdict.

A candidate that the gate does not admit, or that fails in its shadow, never meets a user; one that the
release does not promote is taken out of traffic. Then the champion's weights are published again, as a new
version that is served and learnt from, so that the next cycle begins like any other.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TypeVar

from ostinato.deploy.budget import BudgetRule, chain_of, next_alpha
from ostinato.deploy.control import CycleControl
from ostinato.deploy.gate import ALPHA, gate
from ostinato.deploy.late import fallen, promotions
from ostinato.deploy.terms import Claim
from ostinato.deploy.traffic import named, split
from ostinato.loop.base import LiveTraffic, Resources
from ostinato.loop.live_config import ARMS, CHALLENGER, CHAMPION, live_definition
from ostinato.loop.release import release, until
from ostinato.loop.results import (
    Admission,
    Champion,
    Cycled,
    Judged,
    Lived,
    Measured,
    Published,
    PutBack,
    Shadowed,
    Tested,
)
from ostinato.loop.stages.follow_ups import read_follow_ups
from ostinato.loop.stages.hold_out import account_held_out, holding_out
from ostinato.loop.stages.late import settle_promotions
from ostinato.loop.stages.learn import refine, restore
from ostinato.loop.stages.measure import HeldOutTasks, measure
from ostinato.loop.stages.shadow import shadow
from ostinato.loop.stages.suite import suite_of
from ostinato.loop.stages.watch import drifts_of
from ostinato.loop.trial import compare_held_out, planned
from ostinato.rollout.collect import Collector, Harvest
from ostinato.store import Store
from ostinato.store.cycle_log import CycleAction
from ostinato.store.releases import ReleaseStage, last_release
from ostinato.types import Arm, Decision, Ending, Source, Task

T = TypeVar("T")
"""The arms whose sessions are learnt from; those of a release after its verdict."""


async def cycles(
    resources: Resources, traffic: LiveTraffic, champion: Champion, tasks: Sequence[Task], count: int
) -> list[Cycled]:
    """Run `count` cycles one after another; each begins with the champion that the one before left.

    `tasks` are held out. The champion was measured on all of them, in `bench.passes` passes.
    """
    results: list[Cycled] = []
    held_out = HeldOutTasks(resources, tasks, champion)
    while len(results) < count:
        cycled = await Cycle(resources, traffic, held_out, results).result(champion)
        results.append(cycled)
        champion = Champion(version=cycled.champion, measured=measured_last(held_out.first, results))
    return results


class Cycle:
    """One cycle after those of `earlier`; its stages are kept in the run folder under its name.

    It learns from the live sessions that began after the end of the one before.
    """

    def __init__(
        self, resources: Resources, traffic: LiveTraffic, tasks: HeldOutTasks, earlier: Sequence[Cycled]
    ) -> None:
        self._resources = resources
        self._name = f"cycle-{len(earlier) + 1}"
        self._earlier = earlier
        self._since = earlier[-1].ended_at if earlier else 0.0
        self._promotions = sum(cycled.decision.promotes for cycled in earlier)
        self._traffic = traffic
        self._tasks = tasks
        self._control = CycleControl(resources.store, self._name, resources.poll_s)

    async def result(self, champion: Champion) -> Cycled:
        """Return the result: from the run folder if the cycle is done, else from running it."""
        done = await self._resources.stage(self._name, Cycled, lambda: self._run(champion))
        self._control.log_once(CycleAction.CYCLE_DONE, f"{done.decision.value}: {done.reason}")
        return done

    async def _run(self, champion: Champion) -> Cycled:
        """Run the cycle from live sessions to the verdict; the champion is served until its end."""
        late = await self._stage("late", PutBack, lambda: self._late(champion.version))
        if late.demoted:
            measured = measured_last(self._tasks.first, self._earlier, late.demoted)
            champion = Champion(version=late.version, measured=measured)
        resources, version = self._resources, champion.version
        async with AsyncExitStack() as stack, AsyncExitStack() as engines:
            arm = Arm(name=CHAMPION, version=self._met(version), share=0.0, engines=())
            engine = await engines.enter_async_context(resources.serving(arm))
            await stack.enter_async_context(holding_out(resources, arm))
            if not self._is_releasing():
                deploy(resources.store, arm.version)
            lived = await self._stage("live", Lived, lambda: self._live(version))
            collected = await self._stage("collect", Harvest, self._collect)
            promotions = compare_held_out(resources, self._traffic.clock())
            if promotions is not None:
                resources.show.say(f"hold-out: {promotions}")
            trained = await self._stage("refine", Published, lambda: refine(resources, version))
            candidate = served = trained.version
            judged = None
            if candidate == version:
                resources.show.say("no session could be learnt from: there is no candidate")
            else:
                judged = await self._judge(champion, candidate)
                if not judged.decision.promotes:
                    restored = await self._stage("restore", Published, lambda: restore(resources, version))
                    served = restored.version
            counters = await resources.counters(engine)
            if judged is not None and judged.decision.promotes and arm.version != served:
                await engines.aclose()  # nobody is sent there since the promotion
                await engines.enter_async_context(resources.serving(replace(arm, version=served)))
            deploy(resources.store, served)
            account_held_out(resources.store)
            on_tasks = ""
            if judged is not None and judged.decision.promotes:
                on_tasks = await self._tasks.sum_of_promotions(served, self._promotions + 1)
                if on_tasks:
                    resources.show.say(f"hold-out: {on_tasks}")
            return Cycled(
                lived=lived,
                collected=collected,
                candidate=candidate,
                champion=served,
                engine=counters,
                judged=judged,
                hold_out="" if promotions is None else str(promotions),
                hold_out_tasks=on_tasks,
                ended_at=resources.store.now(),
                put_back=late.demoted,
            )

    def _met(self, version: int) -> int:
        """Return the version that people meet: not the champion's `version` after a kill that followed a
        promotion."""
        tested = self._resources.run.result(f"{self._name}/release", Tested)
        trained = self._resources.run.result(f"{self._name}/refine", Published)
        return trained.version if trained and tested and tested.decision.promotes else version

    def _is_releasing(self) -> bool:
        """Return whether a killed process left a release under way, whose users stay where they are."""
        admission = self._resources.run.result(f"{self._name}/admission", Admission)
        last = None if admission is None else last_release(self._resources.store, admission.experiment)
        return last is not None and last.stage is not ReleaseStage.OVER

    async def _judge(self, champion: Champion, candidate: int) -> Judged:
        resources, tasks = self._resources, self._tasks.of_gate(self._name)
        passes, current = resources.config.bench.passes, champion.measured
        if not self._tasks.is_known(self._name):
            current = await self._stage(
                "champion", Measured, lambda: measure(resources, champion.version, tasks, passes=passes)
            )
        benched = await self._stage(
            "gate", Measured, lambda: measure(resources, candidate, tasks, passes=passes)
        )
        admission = await self._stage(
            "admission", Admission, lambda: self._admit(champion.version, current, benched)
        )
        shadowed = tested = None
        if admission.decision is Decision.ADMIT and resources.config.live.shadow_requests:
            shadowed = await self._stage(
                "shadow", Shadowed, lambda: shadow(resources, champion.version, candidate)
            )
        admitted = (shadowed or admission).decision is Decision.ADMIT
        word, met = self._control.word(), last_release(resources.store, admission.experiment) is not None
        if admitted and word is not None and not met:
            resources.show.say(f"{word.by} said {word.action.value}: the candidate meets nobody")
        elif admitted:
            tested = await self._stage(
                "release", Tested, lambda: self._release(champion.version, candidate, admission)
            )
        return Judged(benched=benched, admission=admission, shadowed=shadowed, tested=tested)

    async def _late(self, version: int) -> PutBack:
        """Settle earlier promotions by their late facts; what the demoted ones replaced is served again."""
        store, definition = self._resources.store, live_definition(self._resources.config.live)
        for late in settle_promotions(store, definition, as_of=self._traffic.clock()):
            self._resources.show.say(f"version {late.version}: {late.reason}")
        down = fallen([each for each in promotions(store) if each.put_back in {"", self._name}])
        if not down or down[0].replaced is None:
            return PutBack(version=version, demoted=())
        restored = await restore(self._resources, down[0].replaced)
        for each in down:
            self._control.log_once(CycleAction.PUT_BACK, each.verdict.id)
        return PutBack(version=restored.version, demoted=tuple(each.version for each in down))

    async def _live(self, version: int) -> Lived:
        """Let the champion serve everybody until enough sessions have ended."""
        await self._traffic.arrive("live", self._since, self._resources.config.live.sessions)
        await until(self._resources.store, self._since + self._resources.config.schedule.every_s)
        ended = self._resources.store.sessions(
            source=Source.LIVE, arm=CHAMPION, ended=True, since=self._since
        )
        sessions = [session.id for session in ended if session.ending is not Ending.INFRASTRUCTURE]
        signals = self._resources.store.signals_of(sessions)
        return Lived(version=version, sessions=len(sessions), signals=sum(map(len, signals.values())))

    async def _collect(self) -> Harvest:
        """Turn the live sessions, those of the last release too, into rewards and groups of one."""
        store, live = self._resources.store, self._resources.config.live
        sessions = store.sessions(source=Source.LIVE, arm=CHAMPION, ended=True)
        tested = store.sessions(source=Source.LIVE, arm=CHALLENGER, ended=True)
        unheard = await read_follow_ups(self._resources, [*sessions, *tested])
        for drift in drifts_of(self._resources, sessions, self._since, self._traffic.clock()):
            way = "rises" if drift.rises else "falls"
            self._control.log(CycleAction.ALARM, f"{drift.behaviour} {way} from session {drift.began} on")
        collector = Collector(store, live_definition(live), live.person_share)
        harvest = collector.harvest(
            ARMS, self._traffic.strata(), as_of=self._traffic.clock(), unheard=unheard
        )
        self._resources.show.say(
            f"collected {harvest.sessions} sessions and {harvest.signals} signals, "
            f"mean reward {harvest.mean_reward:.2f}"
            + (f"; {harvest.withheld} are withheld for want of consent" if harvest.withheld else "")
        )
        return harvest

    async def _admit(self, champion: int, current: Measured, benched: Measured) -> Admission:
        """Decide whether the candidate may meet users, from the same tasks done by the champion (`current`),
        and the suite.

        The A/B test's id and error level are settled here, before any of its sessions. A version is judged
        once in its chain, so its number names the trial, and a cycle that is killed here and goes on
        finds its own verdict.
        """
        resources, live = self._resources, self._resources.config.live
        candidate = benched.measurement.report.version
        experiment = named(f"trial-of-{candidate}", live.assign)
        spent = [each for each in resources.store.verdicts() if each.version != candidate]
        rule = BudgetRule(live.budget)
        alpha, chain = next_alpha(spent, rule), chain_of(spent, rule)
        claim = Claim(live.claim)
        rests = claim is not Claim.BETTER  # what is promoted as no worse is so by this gate too
        verdict = gate(
            current.measurement,
            benched.measurement,
            margin=live.cheaper_solve_margin if claim is Claim.CHEAPER else live.gate_margin,
            alpha=alpha if rests else ALPHA,
            experiment=experiment if rests else None,
            chain=chain,
            suite=await suite_of(resources, champion, candidate),
            surpass=claim is Claim.SUITE,
        )
        resources.store.add_verdict(replace(verdict, id=f"gate-of-{candidate}"))
        resources.show.say(f"gate: {verdict.decision} ({verdict.reason})")
        resources.show.say(f"budget {chain}: a trial now promotes wrongly with chance {alpha:.2%} at most")
        return Admission(
            decision=verdict.decision,
            reason=verdict.reason,
            experiment=experiment,
            alpha=alpha,
            chain=chain,
        )

    async def _release(self, champion: int, candidate: int, admission: Admission) -> Tested:
        plan = planned(self._resources.config.live, admission.experiment, admission.alpha, admission.chain)
        return await release(
            self._resources, self._traffic, plan, self._control, champion=champion, candidate=candidate
        )

    async def _stage(self, name: str, schema: type[T], work: Callable[[], Awaitable[T]]) -> T:
        full = f"{self._name}/{name}"
        if self._resources.run.result(full, schema) is not None:
            done = await self._resources.stage(full, schema, work)
            self._control.log_once(CycleAction.STAGE_DONE, name)
            return done
        await self._control.go_on()
        self._control.log(CycleAction.STAGE_BEGAN, name)
        done = await self._resources.stage(full, schema, work)
        self._control.log(CycleAction.STAGE_DONE, name)
        return done


def measured_last(first: Champion, results: Sequence[Cycled], demoted: Collection[int] = ()) -> Measured:
    """Return the measurement of the weights that stand: those of the last promotion that was not put back."""
    standing: dict[int, Measured] = {}
    for cycled in results:
        if cycled.judged is not None and cycled.judged.decision.promotes:
            standing[cycled.candidate] = cycled.judged.benched
        demoted = {*demoted, *cycled.put_back}
    kept = [measured for version, measured in standing.items() if version not in demoted]
    return kept[-1] if kept else first.measured


def deploy(store: Store, version: int) -> None:
    """Send everybody to `version`, even if an interrupted run left other shares."""
    engines = next((arm.engines for arm in store.arms() if arm.name == CHAMPION), ())
    split(store, [Arm(name=CHAMPION, version=version, share=1.0, engines=engines)])
