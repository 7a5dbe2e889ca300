"""The trials with people, beside the cycles: one trial at a time, from its shadow to its verdict.

::

    cycle 1 ──► gate ─┐   cycle 2 ──► gate ─┐   cycle 3 ──► gate ─┐
                      ▼                     ▼                     ▼
                    front ───────────────►front ───────────────►front      the newest waits
                      └► shadow ► canary ► ramp ► split ► verdict ─┘└► shadow …

Everything that is under way is in the run folder and in the store, so a process that was killed goes on with
the same trial, and with the same level of error.
"""

import asyncio
from contextlib import suppress
from functools import partial

from ostinato.deploy.budget import BudgetRule, level_of
from ostinato.deploy.control import LAST_WORDS, CycleControl
from ostinato.deploy.late import promotions
from ostinato.loop.base import LiveTraffic, Resources
from ostinato.loop.beside.front import Front, trial_name
from ostinato.loop.beside.served import ServedChampion, deploy
from ostinato.loop.live_config import CHAMPION
from ostinato.loop.release import release
from ostinato.loop.results import Deployed, OpenedTrial, Shadowed, Tested, Tried
from ostinato.loop.stages.late import LateFacts
from ostinato.loop.stages.logged import LoggedStages
from ostinato.loop.stages.measure import HeldOutTasks
from ostinato.loop.stages.shadow import shadow
from ostinato.loop.trial import planned
from ostinato.store.cycle_log import CycleAction
from ostinato.store.releases import last_release
from ostinato.types import Decision

BESIDE = "beside"
"""The name under which it logs what belongs to no trial."""


class Trials:
    """The trials of a run, one after another, while cycles bring candidates to the front."""

    def __init__(
        self, resources: Resources, traffic: LiveTraffic, tasks: HeldOutTasks, served: ServedChampion
    ) -> None:
        self._resources = resources
        self._traffic = traffic
        self._tasks = tasks
        self._served = served
        self._late = LateFacts(resources, traffic)
        self._control = CycleControl(resources.store, BESIDE, resources.poll_s)
        self._stirred = asyncio.Event()
        self._looks = True
        """Whether a candidate may have come to the front since the last look."""
        self._is_last = False
        self._ended = asyncio.Event()
        self.front = Front(resources, tasks.first.version)

    async def begin(self) -> None:
        """Serve who was served before a kill: the arms of a trial under way, else the champion."""
        store, champion = self._resources.store, self.front.champion
        opened = self._opened()
        if opened is None or last_release(store, opened.experiment) is None:
            await self._serve(champion)
        else:
            await self._served.serve(next(arm.version for arm in store.arms() if arm.name == CHAMPION))

    async def run(self) -> None:
        """Take the newest candidate to people whenever nobody meets one; end after the last cycle."""
        while True:
            await self._put_back()
            if (opened := self._opened() or await self._next()) is not None:
                await self._try(opened)
            elif self._is_last and not self._looks:
                self._ended.set()
                return
            else:
                await self._wait()

    def stir(self) -> None:
        """Look at the front, since a cycle is done."""
        self.front.settle()
        self._looks = True
        self._stirred.set()

    def end(self) -> None:
        """Let no other trial follow those of the candidates that are there: the last cycle is done."""
        self._is_last = True
        self._stirred.set()

    async def over(self) -> Deployed:
        """Wait for the last trial; return who is served then."""
        await self._ended.wait()
        return Deployed(version=self.front.champion, engine=await self._served.counters())

    def done(self) -> list[Tried]:
        """Return the trials that are over, in their order."""
        found = (self._resources.run.result(name, Tried) for name in self.front.trials())
        return [tried for tried in found if tried is not None]

    def _opened(self) -> OpenedTrial | None:
        """Return the trial under way; None while there is none."""
        run = self._resources.run
        for name in reversed(self.front.trials()):
            if (opened := run.result(f"{name}/opened", OpenedTrial)) is not None:
                if (tried := run.result(name, Tried)) is None:
                    return opened
                self._close(name, tried)  # a kill may have come between its result and its log
                return None
        return None

    def _close(self, name: str, tried: Tried) -> None:
        control = CycleControl(self._resources.store, name)
        control.log_once(CycleAction.TRIAL_CLOSED, f"{tried.decision.value}: {tried.reason}")

    async def _next(self) -> OpenedTrial | None:
        """Open the trial of the candidate that waits; None while there is none, or the cycle is paused."""
        resources, store, live = self._resources, self._resources.store, self._resources.config.live
        if not self._looks or self._control.is_paused():
            return None
        self._looks = False
        cycle = self.front.settle()
        if cycle is None or cycle.judged is None:
            return None
        experiment = cycle.judged.admission.experiment

        async def opened() -> OpenedTrial:
            alpha, chain = level_of(store, cycle.candidate, BudgetRule(live.budget))
            resources.show.say(f"budget {chain}: the trial promotes wrongly with chance {alpha:.2%} at most")
            return OpenedTrial(
                candidate=cycle.candidate,
                champion=cycle.base.champion,
                experiment=experiment,
                alpha=alpha,
                chain=chain,
            )

        return await resources.stage(f"{trial_name(cycle.candidate)}/opened", OpenedTrial, opened)

    async def _try(self, opened: OpenedTrial) -> None:
        name = trial_name(opened.candidate)
        stages = LoggedStages(self._resources, name)
        about = f"version {opened.candidate} against version {opened.champion}"
        stages.control.log_once(CycleAction.TRIAL_OPENED, about)
        self._close(name, await self._resources.stage(name, Tried, lambda: self._meet(opened, stages)))
        self._looks = True

    async def _meet(self, opened: OpenedTrial, stages: LoggedStages) -> Tried:
        """Let the candidate answer in its shadow, then meet people, to the verdict."""
        resources, candidate = self._resources, opened.candidate
        last: Shadowed | Tested | None = None
        shadowed = tested = None
        if resources.config.live.shadow_requests:
            work = partial(shadow, resources, opened.champion, candidate)
            last = shadowed = await stages.done("shadow", Shadowed, work)
        word, met = stages.control.word(), last_release(resources.store, opened.experiment) is not None
        decision, reason = Decision.HOLD, ""
        if word is not None and not met:
            decision, reason = LAST_WORDS[word.action], f"{word.by} said {word.action.value}"
            resources.show.say(f"{reason}: version {candidate} meets nobody")
        elif last is None or last.decision is Decision.ADMIT:
            last = tested = await stages.done("release", Tested, lambda: self._release(opened, stages))
        if last is not None and not reason:
            decision, reason = last.decision, last.reason
        on_tasks = ""
        if decision.promotes:
            number = len(promotions(resources.store))
            on_tasks = await self._tasks.sum_of_promotions(candidate, number)
        if on_tasks:
            resources.show.say(f"hold-out: {on_tasks}")
        return Tried(
            opened=opened,
            shadowed=shadowed,
            tested=tested,
            decision=decision,
            reason=reason,
            hold_out_tasks=on_tasks,
        )

    async def _release(self, opened: OpenedTrial, stages: LoggedStages) -> Tested:
        plan = planned(self._resources.config.live, opened.experiment, opened.alpha, opened.chain)
        return await release(
            self._resources,
            self._traffic,
            plan,
            stages.control,
            late=self._late,
            champion=opened.champion,
            candidate=opened.candidate,
            serve=self._serve,
        )

    async def _serve(self, version: int) -> None:
        """Send everybody to one version, by an engine that stays up."""
        await self._served.serve(version)
        deploy(self._resources.store, version)

    async def _put_back(self) -> None:
        """Serve again what a promotion had replaced that late facts, or a person, demoted."""
        down = self._late.fallen()
        if not down or down[0].replaced is None:
            return
        await self._serve(down[0].replaced)
        for each in down:
            self._control.log_once(CycleAction.PUT_BACK, each.verdict.id)
        self._resources.show.say(f"version {down[0].version} is demoted: {down[0].replaced} is served again")
        self.stir()

    async def _wait(self) -> None:
        """Wait until a cycle is done, or for the next whole multiple of the pause."""
        clock, poll_s = asyncio.get_running_loop().time, self._resources.poll_s
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stirred.wait(), poll_s - clock() % poll_s)
        self._stirred.clear()
