"""The A/B test of one candidate: users are assigned to arms, their sessions become observations, a verdict
is reached and acted on.

Nobody stays on a version that was not promoted.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from statistics import fmean

from ostinato.deploy.abtest import Claim, Trial, TrialSession, judge
from ostinato.deploy.control import LAST_WORDS, CycleControl
from ostinato.deploy.traffic import promote, roll_back, split
from ostinato.loop.base import LiveTraffic
from ostinato.loop.config import LiveConfig, live_definition
from ostinato.loop.results import ArmSummary, Tested
from ostinato.loop.run import START
from ostinato.loop.stages.follow_ups import read_follow_ups
from ostinato.loop.stages.watch import alarms_of_trial, watched
from ostinato.loop.workshop import Workshop
from ostinato.model.families import load_renderer
from ostinato.rewards.live.definition import LiveDefinition
from ostinato.rewards.live.facts import CLEAREST
from ostinato.rewards.monitors.alarms import Alarm
from ostinato.store import Ledger, Store
from ostinato.store.cycle_log import CycleAction, CycleEntry, cycle_log
from ostinato.types import Arm, Decision, Ending, Session, Signal, SignalKind, Source, State, Turn, Verdict

CHAMPION = "champion"
CHALLENGER = "challenger"
GUARDRAILS = {"complaints": 0.1, "abandoned": 0.1, "broken": 0.1, "latency": math.log(1.5)}
"""The first three are shares of sessions; the last is the logarithm of a turn's latency, so half as much
again is too much."""


def planned(live: LiveConfig, experiment: str, alpha: float, *, horizon: int) -> Trial:
    """Return the terms of a trial under the run's settings."""
    claim = Claim(live.claim)
    return Trial(
        experiment=experiment,
        share=live.challenger_share,
        horizon=horizon,
        alpha=alpha,
        claim=claim,
        margin=live.cheaper_reward_margin if claim is Claim.CHEAPER else 0.0,
        guardrails=GUARDRAILS,
        champion=CHAMPION,
        challenger=CHALLENGER,
    )


async def ab_test(
    shop: Workshop,
    traffic: LiveTraffic,
    trial: Trial,
    control: CycleControl,
    *,
    champion: int,
    candidate: int,
    since: float,
) -> Tested:
    """Split the users between both versions, judge, and act on the verdict. The champion is served already.

    A word of a person ends it at once and overrules the verdict. An interrupted test goes on as the same
    trial: what its users did from `since` on counts, and is accounted for.
    """
    challenger = Arm(name=CHALLENGER, version=candidate, share=0.0, engines=())
    async with shop.serving(challenger) as engine:
        engines = {arm.name: arm.engines for arm in shop.store.arms()}
        arms = [
            Arm(name=name, version=version, share=share, engines=engines[name], experiment=trial.experiment)
            for name, version, share in (
                (CHAMPION, champion, 1 - trial.share),
                (CHALLENGER, candidate, trial.share),
            )
        ]
        split(shop.store, arms)
        log_terms(shop.store, control, trial, since=since, versions=(champion, candidate))
        word = await control.unless(traffic.arrive("ab", since))
        await read_follow_ups(shop, shop.store.sessions(source=Source.LIVE, ended=True, since=since))
        definition = live_definition(shop.config.live)
        observations, verdict = decide(
            shop.store, definition, candidate, trial, since=since, as_of=traffic.clock()
        )
        if verdict.decision.promotes and (found := _alarms(shop, trial, since, traffic.clock())):
            verdict = held(verdict, found)
            shop.store.add_verdict(verdict)
            control.log(CycleAction.ALARM, verdict.reason)
        if word is not None:
            verdict = overruled(verdict, word)
            shop.store.add_verdict(verdict)
        act = promote if verdict.decision.promotes else roll_back
        act(shop.store, arms)
        shop.show.say(f"A/B: {verdict.decision} ({verdict.reason})")
        return Tested(
            decision=verdict.decision,
            reason=verdict.reason,
            arms={arm.name: summary(arm, observations) for arm in arms},
            evidence=verdict.evidence,
            engine=await shop.counters(engine),
        )


def log_terms(
    store: Store, control: CycleControl, trial: Trial, *, since: float, versions: tuple[int, int]
) -> None:
    """Log the terms of a trial once, so that whoever reads the record can judge it again at any session."""
    began = [entry for entry in cycle_log(store) if entry.action is CycleAction.TRIAL_BEGAN]
    if any(json.loads(entry.detail)["experiment"] == trial.experiment for entry in began):
        return
    terms = {
        **asdict(trial),
        "since": since,
        "versions": dict(zip((CHAMPION, CHALLENGER), versions, strict=True)),
    }
    control.log(CycleAction.TRIAL_BEGAN, json.dumps(terms))


def decide(
    store: Store, definition: LiveDefinition, candidate: int, trial: Trial, *, since: float, as_of: float
) -> tuple[list[TrialSession], Verdict]:
    """Return the trial's observations and the verdict on them, which is recorded."""
    sessions = _of_trial(store, trial, since)
    Ledger(store).account_sessions([session.id for session in sessions], State.MEASURED)
    observations = observe(store, definition, sessions, as_of)
    verdict = judge(candidate, trial, observations, usual(store, definition, before=since, as_of=as_of))
    store.add_verdict(verdict)
    return observations, verdict


def _alarms(shop: Workshop, trial: Trial, since: float, as_of: float) -> list[Alarm]:
    tokenizer = load_renderer(shop.run.checkpoint(START)).tokenizer
    sessions = _of_trial(shop.store, trial, since)
    seen = watched(shop.store, tokenizer, live_definition(shop.config.live), sessions, as_of)
    return alarms_of_trial(seen, trial)


def held(verdict: Verdict, found: Sequence[Alarm]) -> Verdict:
    """Return the verdict that alarms make of a promotion: a HOLD that names the sessions to look at."""
    reason = "; ".join(alarm.sentence for alarm in found)
    evidence = {"trial": dict(verdict.evidence), "alarms": [asdict(alarm) for alarm in found]}
    return Verdict(
        version=verdict.version, decision=Decision.HOLD, reason=f"monitors: {reason}", evidence=evidence
    )


def overruled(verdict: Verdict, word: CycleEntry) -> Verdict:
    """Return the decision of a person in place of the trial's; the evidence so far stays beside it.

    It is no verdict of an experiment: a promotion by hand shows nothing, so it frees no chance of error.
    """
    reason = f"{word.by} said {word.action.value}" + (f": {word.detail}" if word.detail else "")
    evidence = {"by": word.by, "instead_of": verdict.decision.value, "trial": dict(verdict.evidence)}
    return Verdict(
        version=verdict.version, decision=LAST_WORDS[word.action], reason=reason, evidence=evidence
    )


def _of_trial(store: Store, trial: Trial, since: float) -> list[Session]:
    return [
        session
        for arm in (trial.champion, trial.challenger)
        for session in store.sessions(source=Source.LIVE, arm=arm, ended=True, since=since)
    ]


def observe(
    store: Store, definition: LiveDefinition, sessions: Iterable[Session], as_of: float
) -> list[TrialSession]:
    """Return the worth of each session at the end of its attribution window.

    A session whose window is open does not count yet, and one that our own failure ended never does.
    """
    ours = [session for session in sessions if session.ending is not Ending.INFRASTRUCTURE]
    ids = [session.id for session in ours]
    turns, signals = store.turns_of(ids), store.signals_of(ids)
    observed = (_observed(definition, s, turns.get(s.id, []), signals.get(s.id, []), as_of) for s in ours)
    return [each for each in observed if each is not None]


def _observed(
    definition: LiveDefinition,
    session: Session,
    turns: Sequence[Turn],
    signals: Sequence[Signal],
    as_of: float,
) -> TrialSession | None:
    reward = definition.settled(session.id, turns, signals, as_of=as_of)
    if reward is None:
        return None
    told = [s for s in signals if s.observed_at <= definition.settles_at(turns)]
    said = {s.kind for s in told if s.value != 0.0}
    angry = SignalKind.COMPLAINT in said or any(map(_is_displeased, told))
    left = SignalKind.ABANDONED in said or session.ending is Ending.ABANDONED
    return TrialSession(
        arm=session.arm,
        user=session.user,
        at=session.started_at,
        value=reward.total,
        tokens=float(sum(len(turn.completion.ids) for turn in turns)),
        harms={
            "complaints": float(angry),
            "abandoned": float(left),
            "broken": float(any(part.name == "broken" and part.value < 0 for part in reward.parts)),
            "latency": fmean(math.log(max(turn.latency_s, 1e-3)) for turn in turns),
        },
    )


def _is_displeased(signal: Signal) -> bool:
    """Return whether it is a thumb down, or a follow-up that was read as dissatisfied."""
    if signal.kind is SignalKind.RATING:
        return signal.value == 0.0
    return signal.kind is SignalKind.FOLLOW_UP and float(signal.value) >= CLEAREST


def usual(store: Store, definition: LiveDefinition, before: float, as_of: float) -> dict[str, float]:
    """Return, by user, the mean reward of their live sessions that began before the trial."""
    sessions = store.sessions(source=Source.LIVE, ended=True)
    worth = defaultdict(list)
    for observation in observe(store, definition, [s for s in sessions if s.started_at < before], as_of):
        worth[observation.user].append(observation.value)
    return {user: fmean(values) for user, values in worth.items()}


def summary(arm: Arm, observations: Sequence[TrialSession]) -> ArmSummary:
    """Return the figures of one arm: its sessions, its users, and the mean reward of a session."""
    mine = [observation for observation in observations if observation.arm == arm.name]
    users = {observation.user for observation in mine}
    mean = sum(observation.value for observation in mine) / max(1, len(mine))
    return ArmSummary(version=arm.version, sessions=len(mine), users=len(users), mean_reward=round(mean, 4))
