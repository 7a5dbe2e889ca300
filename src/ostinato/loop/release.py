"""The release of one candidate: canary, ramp and split on live traffic, and the end of it.

Where it is, is a row in the store. A process that is killed goes on at that step, and a release that anybody
ended stays ended. Nobody stays on a version that was not promoted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from ostinato.deploy.control import LAST_WORDS, CycleControl
from ostinato.deploy.release import ReleasePlan, end, guard, widen
from ostinato.deploy.terms import TrialSession
from ostinato.deploy.traffic import promoted, restored
from ostinato.loop.base import LiveTraffic, Resources
from ostinato.loop.live_config import CHALLENGER, CHAMPION, live_definition
from ostinato.loop.results import Tested
from ostinato.loop.stages.follow_ups import read_follow_ups
from ostinato.loop.stages.late import LateFacts
from ostinato.loop.trial import (
    alarms_in,
    attended,
    heard,
    held,
    judged,
    log_terms,
    observe,
    of_trial,
    overruled,
    summary,
    usual,
)
from ostinato.rewards.live.rescore import rescore
from ostinato.rewards.monitors.alarms import Alarm
from ostinato.rollout.collect import await_collection
from ostinato.store import Store
from ostinato.store.cycle_log import CycleAction, cycle_log
from ostinato.store.releases import Release, ReleaseStage, last_release, releases
from ostinato.types import Arm, Decision, Verdict

SETTLE_S = 1.0
"""The time after a change of shares in which sessions do not count; gateways notice within a quarter."""
YOUNG_S = 5.0
"""A look while sessions come leaves out those whose windows ended less than this ago: their last words may
be on the way."""


class Releasing:
    """One release under way; the champion is served already, and `arms` = (champion, challenger)."""

    def __init__(
        self,
        resources: Resources,
        traffic: LiveTraffic,
        plan: ReleasePlan,
        control: CycleControl,
        *,
        late: LateFacts,
        arms: tuple[Arm, Arm],
    ) -> None:
        self._resources = resources
        self._traffic = traffic
        self._plan = plan
        self._control = control
        self._late = late
        self._arms = arms
        self._verdict: Verdict | None = None
        self._observations: list[TrialSession] = []
        self._habits: Mapping[str, float] | None = None
        self._seen = 0
        self._read: set[str] = set()

    async def run(self) -> tuple[Verdict, list[TrialSession]]:
        """Take the candidate from the step where it is to its end; return the verdict and what it saw."""
        if (recorded := self._recorded()) is not None:
            self._act(recorded)
            return recorded, self._observations
        self._look_back()
        for number in range(self._at(), len(self._plan.steps)):
            if self._control.word() is not None:
                break
            row = widen(self._resources.store, self._plan, number, self._arms)
            if row.stage is ReleaseStage.OVER:
                break
            self._resources.show.say(
                f"{row.stage.value}: {row.share:.0%} of users meet version {self._candidate}"
            )
            if await self._step(number, row):
                break
        return self._conclude(), self._observations

    @property
    def _candidate(self) -> int:
        return self._arms[1].version

    def _at(self) -> int:
        """Return the step to begin or to go on with."""
        last = last_release(self._resources.store, self._plan.trial.experiment)
        return 0 if last is None else last.step

    async def _step(self, number: int, row: Release) -> bool:
        """Let people work until the step is over or decided; return whether the release is over."""
        since = row.at + SETTLE_S
        step, self._seen = self._plan.steps[number], 0
        if step.stage is ReleaseStage.SPLIT:
            versions = self._arms[0].version, self._candidate
            store, trial = self._resources.store, self._plan.trial
            began = _began(store, self._plan)
            times = {"since": since, "habits_before": began, "ahead_s": self._ahead_s}
            log_terms(store, self._control, trial, versions=versions, **times)
        await until(self._resources.store, since)

        over = False

        async def decided() -> bool:
            nonlocal over
            if await asyncio.to_thread(self._champion_fell):
                over = True
            elif await asyncio.to_thread(self._has_more, number, since):
                await self._read_follow_ups(since)
                over = await asyncio.to_thread(self._look, number, since, YOUNG_S)
            return over

        arrive = self._traffic.arrive("ab", since, step.sessions)
        word = await self._control.unless(arrive, decided)
        if over:
            return True
        await self._read_follow_ups(since)
        return self._look(number, since, 0.0 if word is None else YOUNG_S) or word is not None

    async def _read_follow_ups(self, since: float) -> None:
        """Let the judge read what people answered, before their sessions are judged by it."""
        sessions = of_trial(self._resources.store, self._plan.trial, since)
        await read_follow_ups(self._resources, [each for each in sessions if each.id not in self._read])
        self._read.update(each.id for each in sessions)

    def _look_back(self) -> None:
        """Find the verdict of a release that ended before its verdict was recorded: it is in the record."""
        rows = releases(self._resources.store, self._plan.trial.experiment)
        if len(rows) < 2 or rows[-1].stage is not ReleaseStage.OVER:
            return
        self._read = {each.id for each in of_trial(self._resources.store, self._plan.trial, rows[0].at)}
        for young_s in (YOUNG_S, 0.0):
            self._look(rows[-2].step, rows[-2].at + SETTLE_S, young_s, rows[-1].at)
            if self._verdict is not None and _detail(self._verdict) == rows[-1].detail:
                return

    def _has_more(self, number: int, since: float) -> bool:
        """Return whether a hundredth of the step's sessions has ended since the last look."""
        ended = len(of_trial(self._resources.store, self._plan.trial, since))
        if ended - self._seen < max(1.0, self._plan.steps[number].sessions / 100):
            return False
        self._seen = ended
        return True

    def _look(self, number: int, since: float, young_s: float, at: float | None = None) -> bool:
        """Judge what is known now, or was known `at` that time; return whether that ends the release.

        The last look, when no more sessions come, leaves no young ones out. A session that ended after the
        follow-ups were read waits for the next look: an answer to it may be a complaint that nobody has read.

        A roll-back takes effect here, while sessions in flight still end.
        """
        store, definition = self._resources.store, live_definition(self._resources.config.live)
        at = store.now() if at is None else at
        trial, as_of = self._plan.trial_of(number), at + self._ahead_s - young_s
        habits = self._usual()
        if self._plan.steps[number].stage is ReleaseStage.SPLIT:
            self._observations, self._verdict = judged(
                store,
                definition,
                self._candidate,
                trial,
                since=since,
                habits=habits,
                as_of=as_of,
                closed=young_s == 0.0,
                among=self._read,
            )
            return self._is_over(self._verdict)
        ended = [each for each in of_trial(store, trial, since) if each.id in self._read]
        sessions = [session for session in ended if session.started_at <= at]
        self._observations = observe(store, definition, sessions, as_of)
        told = heard(store, definition, sessions, as_of)
        came = attended(store, trial, since, as_of)
        self._verdict = guard(self._candidate, trial, told, self._observations, habits, attendance=came)
        return self._is_over(self._verdict)

    @property
    def _ahead_s(self) -> float:
        """The seconds by which the clock of the sessions is ahead of the record's."""
        return self._traffic.clock() - self._resources.store.now()

    def _usual(self) -> Mapping[str, float]:
        """Return the habits that were settled when the release began: one set for all of its looks."""
        if self._habits is None:
            began, definition = (
                _began(self._resources.store, self._plan),
                live_definition(self._resources.config.live),
            )
            as_of = began + self._ahead_s
            self._habits = usual(self._resources.store, definition, before=began, as_of=as_of)
        return self._habits

    def _champion_fell(self) -> bool:
        """Return whether the champion of this trial stands no more.

        Then there is nothing to compare with: the trial is held, and what stands is put back after it.
        """
        down = self._late.fallen()
        if down and down[0].late is not None:
            reason = f"the champion rests on version {down[0].version}, which was {down[0].late.reason}"
            self._verdict = Verdict(
                version=self._candidate,
                decision=Decision.HOLD,
                reason=reason,
                evidence={} if self._verdict is None else self._verdict.evidence,
            )
        return bool(down)

    def _is_over(self, verdict: Verdict) -> bool:
        if verdict.decision is Decision.ROLL_BACK:
            self._act(verdict)
        return verdict.decision is not Decision.HOLD or "void" in verdict.evidence

    def _conclude(self) -> Verdict:
        """Record the verdict, or the word of a person in its place, and act on it."""
        store, word = self._resources.store, self._control.word()
        verdict = self._verdict or Verdict(
            version=self._candidate, decision=Decision.HOLD, reason="nobody met it", evidence={}
        )
        if verdict.decision.promotes and (found := self._alarms()):
            store.add_verdict(replace(verdict, id=f"{self._plan.trial.experiment}/alarms"))
            verdict = held(verdict, found)
            self._control.log(CycleAction.ALARM, verdict.reason)
        if word is not None:
            store.add_verdict(replace(verdict, id=f"{self._plan.trial.experiment}/word"))
            verdict = overruled(verdict, word)
        began = _began(store, self._plan)
        said = [entry for entry in cycle_log(store, since=began) if entry.action in LAST_WORDS]
        words = [f"{entry.by} said {entry.action.value}" for entry in said]
        evidence = {**verdict.evidence, "release": self._plan.trial.experiment, "words": words}
        evidence["replaced"] = self._arms[0].version
        verdict = replace(verdict, evidence=evidence, id=self._plan.trial.experiment)
        ended = self._act(verdict)
        if verdict.decision.promotes and ended.detail != _detail(verdict):  # somebody was faster
            verdict = replace(verdict, decision=Decision.ROLL_BACK, reason=ended.detail)
        store.add_verdict(verdict)
        return verdict

    def _act(self, verdict: Verdict) -> Release:
        """End the release as the verdict says; return the row that ended it, which may be an earlier one."""
        after = promoted(self._arms) if verdict.decision.promotes else restored(self._arms)
        return end(self._resources.store, self._plan.trial.experiment, after, _detail(verdict))

    def _recorded(self) -> Verdict | None:
        """Return the verdict of this release if a process recorded it before it was killed."""
        experiment = self._plan.trial.experiment
        verdicts = self._resources.store.verdicts(self._candidate)
        return next((each for each in verdicts if each.id == experiment), None)

    def _alarms(self) -> list[Alarm]:
        rows = releases(self._resources.store, self._plan.trial.experiment)
        last = next(row for row in reversed(rows) if row.stage is not ReleaseStage.OVER)
        at = rows[-1].at if rows[-1].stage is ReleaseStage.OVER else self._resources.store.now()
        return alarms_in(self._resources, self._plan.trial, last.at + SETTLE_S, at + self._ahead_s)


async def release(
    resources: Resources,
    traffic: LiveTraffic,
    plan: ReleasePlan,
    control: CycleControl,
    *,
    late: LateFacts,
    champion: int,
    candidate: int,
    serve: Callable[[int], Awaitable[None]],
) -> Tested:
    """Take a candidate to people, step by step, and act on the verdict. The champion is served already, and
    `serve` sends everybody to a version that was promoted, by an engine that stays up.

    A word of a person ends it at once and overrules the verdict. An interrupted release goes on as the same
    one.
    """
    async with resources.serving(Arm(name=CHALLENGER, version=candidate, share=0.0, engines=())) as engine:
        present = {arm.name: arm for arm in resources.store.arms()}
        arms = (
            replace(present[CHAMPION], version=champion, experiment=plan.trial.experiment),
            replace(present[CHALLENGER], version=candidate, experiment=plan.trial.experiment),
        )
        releasing = Releasing(resources, traffic, plan, control, late=late, arms=arms)
        verdict, observations = await releasing.run()
        if verdict.decision.promotes:
            await serve(candidate)
        met = of_trial(resources.store, plan.trial, _began(resources.store, plan))
        await asyncio.to_thread(
            rescore, resources.store, live_definition(resources.config.live), met, as_of=traffic.clock()
        )
        await_collection(resources.store, met)
        resources.show.say(f"release: {verdict.decision} ({verdict.reason})")
        return Tested(
            decision=verdict.decision,
            reason=verdict.reason,
            steps=tuple(row.stage.value for row in releases(resources.store, plan.trial.experiment)),
            arms={arm.name: summary(arm, observations) for arm in arms},
            evidence=verdict.evidence,
            engine=await resources.counters(engine),
        )


async def until(store: Store, moment: float) -> None:
    """Wait until then, in seconds since the epoch; a moment that is over is not waited for."""
    await asyncio.sleep(max(0.0, moment - store.now()))


def _detail(verdict: Verdict) -> str:
    return f"{verdict.decision.value}: {verdict.reason}"


def _began(store: Store, plan: ReleasePlan) -> float:
    """Return the moment at which the release began; far in the future when nobody met the candidate."""
    return next((row.at for row in releases(store, plan.trial.experiment)), float("inf"))
