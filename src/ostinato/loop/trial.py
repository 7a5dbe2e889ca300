"""The comparison of two versions on live traffic: sessions become observations, those become a verdict."""

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean

from sqlalchemy import func, select

from ostinato.deploy.abtest import PEOPLE, judge
from ostinato.deploy.budget import FIRST_CHAIN
from ostinato.deploy.control import LAST_WORDS, CycleControl
from ostinato.deploy.hold_out import SumOfPromotions, sum_of_promotions
from ostinato.deploy.release import ReleasePlan, plan_of
from ostinato.deploy.terms import BETTER, CLAIMS, Attendance, Trial, TrialSession
from ostinato.extend import PluginError
from ostinato.loop.base import Resources
from ostinato.loop.live_config import ARMS, CHALLENGER, CHAMPION, LiveConfig, live_definition
from ostinato.loop.results import ArmSummary
from ostinato.loop.run import START
from ostinato.loop.stages.hold_out import account_held_out
from ostinato.loop.stages.watch import alarms_of_trial, watched
from ostinato.model.families import load_renderer
from ostinato.rewards.live.definition import LiveDefinition
from ostinato.rewards.live.facts import CLEAREST, READERS, Price, SessionFacts
from ostinato.rewards.monitors.alarms import Alarm
from ostinato.rollout.collect import AT_ONCE
from ostinato.store import Store
from ostinato.store.cycle_log import CycleAction, CycleEntry, cycle_log
from ostinato.store.pages import ended_sessions
from ostinato.store.releases import last_promotion, releases
from ostinato.store.sql import schema
from ostinato.types import Arm, Decision, Ending, Reward, Session, Signal, SignalKind, Source, Turn, Verdict
from ostinato.types.release import WITHIN

MORE = 1.25
"""The multiple of the champion's that a guardrail may reach."""
SMALL = 0.005
"""What a share may rise by beside, so that a rare harm's limit is not next to nothing."""
GUARDRAILS = {
    "complaints": SMALL,
    "abandoned": SMALL,
    "broken": SMALL,
    "latency": math.log(MORE),
    "sessions": math.log(MORE),
    "returning": SMALL,
}
"""The first three are shares of sessions, the last the share of sessions after which a person stays away; the
others are logarithms, of a turn's latency and of a person's sessions."""
SCALES = {"complaints": MORE, "abandoned": MORE, "broken": MORE, "returning": MORE}
BACK_S = 2 * 86_400.0
"""The time in which a person comes back; one day would miss those who begin later on the next morning."""
GAINS = {"kept": "kept", "reverted": "reverted", "persisted": "share_kept"}
"""The facts that a verdict reports beside its decision."""
PERSISTED_S = 900.0
"""The age of an edit at which its persistence is reported."""
FAILED = 0.05
"""The limit, before the split, of the share of sessions that our own failure ended: an engine that dies under
a candidate must not wait for a verdict, since such sessions have no reward."""


def planned(live: LiveConfig, experiment: str, alpha: float, chain: str = FIRST_CHAIN) -> ReleasePlan:
    """Return the plan of a release, with the terms of its trial, under the run's settings."""
    guardrails = dict(GUARDRAILS)
    if WITHIN.search(experiment):  # whoever meets both arms stays away from neither
        guardrails = {name: limit for name, limit in GUARDRAILS.items() if name not in PEOPLE}
    terms = Trial(
        experiment=experiment,
        share=live.challenger_share,
        horizon=live.ab_sessions,
        alpha=alpha,
        chain=chain,
        claim=live.claim,
        source=CLAIMS.digest(live.claim),
        margin=0.0 if live.claim == BETTER else live.reward_margin,
        guardrails=guardrails,
        scales=SCALES,
        champion=CHAMPION,
        challenger=CHALLENGER,
    )
    canary = live.canary_share, live.canary_sessions
    return plan_of(terms, canary=canary, ramp=live.ramp, early=guardrails | {"failed": FAILED})


def log_terms(
    store: Store,
    control: CycleControl,
    trial: Trial,
    *,
    since: float,
    versions: tuple[int, int],
    habits_before: float,
    ahead_s: float,
) -> None:
    """Log the terms of a trial once, so that whoever reads the record can judge it again at any session.

    What was usual is read from sessions that began before `habits_before`: nobody met the challenger then.
    `ahead_s` are the seconds by which the clock of its sessions is ahead of the record's: attribution windows
    of simulated people are over before their time. Raises PluginError for a claim that was changed meanwhile.
    """
    began = [entry for entry in cycle_log(store) if entry.action is CycleAction.TRIAL_BEGAN]
    logged = [terms for each in began if (terms := json.loads(each.detail))["experiment"] == trial.experiment]
    if any(terms.get("source", "") != trial.source for terms in logged):
        raise PluginError(
            f"{trial.experiment} began under another source of the claim {trial.claim!r}: put that back "
            "until it is over, or give the candidate up by `ostinato cycle abort`"
        )
    if logged:
        return
    terms = {
        **asdict(trial),
        "since": since,
        "habits_before": habits_before,
        "ahead_s": ahead_s,
        "versions": dict(zip((CHAMPION, CHALLENGER), versions, strict=True)),
    }
    control.log(CycleAction.TRIAL_BEGAN, json.dumps(terms))


def judged(
    store: Store,
    definition: LiveDefinition,
    candidate: int,
    trial: Trial,
    *,
    since: float,
    habits: Mapping[str, float],
    as_of: float,
    closed: bool = False,
    among: Collection[str] | None = None,
) -> tuple[list[TrialSession], Verdict]:
    """Return the observations of the sessions that began at `since` or later, and the verdict on them.

    `habits` is what was `usual` before anybody met the candidate; no more sessions come to a `closed` trial.
    Times are in seconds since the epoch. Where `among` is given, only sessions with these ids are judged.
    """
    sessions = of_trial(store, trial, since)
    if among is not None:
        sessions = [session for session in sessions if session.id in among]
    observations = observe(store, definition, sessions, as_of)
    came = attended(store, trial, since, as_of)
    return observations, judge(candidate, trial, observations, habits, attendance=came, closed=closed)


def attended(store: Store, trial: Trial, since: float, as_of: float) -> list[Attendance]:
    """Return how often everybody came who began a session of the trial by `as_of`.

    A person is on an arm from their first session on, which cannot depend on what they met. Sessions that are
    under way or that our own failure ended are sessions too. Before `BACK_S` are over a session tells nothing
    of whether its person came back; a clock that is ahead of the record's lets no time pass.
    """
    begun: dict[tuple[str, str], list[float]] = defaultdict(list)
    for arm in (trial.champion, trial.challenger):
        for session in store.sessions(source=Source.LIVE, arm=arm, since=since):
            if session.started_at <= as_of:
                begun[arm, session.user].append(session.started_at)
    met = next((row.at for row in releases(store, trial.experiment)), since)
    table = schema.sessions.c
    query = select(table.user, func.count()).where(table.source == Source.LIVE.value, table.started_at < met)
    with store.database.read() as connection:
        earlier = {user: int(count) for user, count in connection.execute(query.group_by(table.user))}
    return attendance(begun, earlier, min(as_of, store.now()))


def attendance(
    begun: Mapping[tuple[str, str], Sequence[float]], earlier: Mapping[str, int], now: float
) -> list[Attendance]:
    """Return how often each came whose sessions, by (arm, user), began at these times, in their order.

    `earlier` are the numbers of sessions by user before anybody met the challenger.
    """
    found = []
    for (arm, user), times in begun.items():
        following = zip(times, [*times[1:], math.inf], strict=True)
        away = [next_at - at > BACK_S for at, next_at in following if at + BACK_S <= now]
        gone = fmean(away) if away else None
        usual = earlier.get(user, 0)
        found.append(Attendance(arm=arm, user=user, sessions=len(times), gone=gone, earlier=usual))
    return found


def alarms_in(resources: Resources, trial: Trial, since: float, as_of: float) -> list[Alarm]:
    """Return what the monitors say of the challenger's sessions against the champion's."""
    tokenizer = load_renderer(resources.run.checkpoint(START)).tokenizer
    sessions = of_trial(resources.store, trial, since)
    seen = watched(resources.store, tokenizer, live_definition(resources.config.live), sessions, as_of)
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


def of_trial(store: Store, trial: Trial, since: float) -> list[Session]:
    """Return the ended sessions of both arms that began at `since` or later, in seconds since the epoch."""
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
    observed = []
    for session in ours:
        mine, said = turns.get(session.id, []), signals.get(session.id, [])
        reward = definition.settled(session.id, mine, said, as_of=as_of)
        if reward is not None:
            observed.append(_observed(definition, session, mine, said, reward))
    return observed


def heard(
    store: Store, definition: LiveDefinition, sessions: Iterable[Session], as_of: float
) -> list[TrialSession]:
    """Return what is known of the harms of each session, whatever its age, those that failed included.

    The reward is that of what is known so far, and means nothing yet.
    """
    listed = list(sessions)
    ids = [session.id for session in listed]
    turns, signals = store.turns_of(ids), store.signals_of(ids)
    told = []
    for session in listed:
        mine, said = turns.get(session.id, []), signals.get(session.id, [])
        failed = session.ending is Ending.INFRASTRUCTURE
        if failed or not mine:
            harms = {"failed": float(failed)}
            told.append(_outcome(session, value=0.0, tokens=0.0, harms=harms))
            continue
        reward = definition.score(session.id, mine, said, as_of=as_of)
        one = _observed(definition, session, mine, said, reward)
        told.append(replace(one, harms={**one.harms, "failed": 0.0}))
    return told


def _observed(
    definition: LiveDefinition,
    session: Session,
    turns: Sequence[Turn],
    signals: Sequence[Signal],
    reward: Reward,
) -> TrialSession:
    told = [s for s in signals if s.observed_at <= definition.settles_at(turns, signals)]
    said = {s.kind for s in told if s.value != 0.0}
    angry = SignalKind.COMPLAINT in said or any(map(_is_displeased, told))
    left = SignalKind.ABANDONED in said or session.ending is Ending.ABANDONED
    seconds = [turn.latency_s for turn in turns]
    one = _outcome(
        session,
        value=reward.total,
        tokens=float(sum(len(turn.completion.ids) for turn in turns)),
        harms={
            "complaints": float(angry),
            "abandoned": float(left),
            "broken": float(any(part.name == "broken" and part.value < 0 for part in reward.parts)),
            "latency": fmean(math.log(max(each, 1e-3)) for each in seconds),
        },
    )
    facts = SessionFacts(turns, told)
    known = {name: READERS[fact].read(facts, PERSISTED_S, Price()) for name, fact in GAINS.items()}
    gains = {name: fact.value for name, fact in known.items() if fact is not None}
    return replace(one, gains={**gains, "dissatisfied": float(angry), "latency": fmean(seconds)})


def _outcome(session: Session, value: float, tokens: float, harms: Mapping[str, float]) -> TrialSession:
    return TrialSession(
        arm=session.arm, user=session.user, at=session.started_at, value=value, tokens=tokens, harms=harms
    )


def _is_displeased(signal: Signal) -> bool:
    """Return whether it is a thumb down, or a follow-up that was read as dissatisfied."""
    if signal.kind is SignalKind.RATING:
        return signal.value == 0.0
    return signal.kind is SignalKind.FOLLOW_UP and float(signal.value) >= CLEAREST


def usual(store: Store, definition: LiveDefinition, before: float, as_of: float) -> dict[str, float]:
    """Return, by user, the mean reward of their live sessions that began before the trial."""
    worth: dict[str, list[float]] = defaultdict(list)
    for page in ended_sessions(store, ARMS, AT_ONCE):
        for one in observe(store, definition, [s for s in page if s.started_at < before], as_of):
            worth[one.user].append(one.value)
    return {user: fmean(values) for user, values in worth.items()}


def summary(arm: Arm, observations: Sequence[TrialSession]) -> ArmSummary:
    """Return the figures of one arm: its sessions, its users, and the mean reward of a session."""
    mine = [observation for observation in observations if observation.arm == arm.name]
    users = {observation.user for observation in mine}
    mean = sum(observation.value for observation in mine) / max(1, len(mine))
    return ArmSummary(version=arm.version, sessions=len(mine), users=len(users), mean_reward=round(mean, 4))


def compare_held_out(resources: Resources, as_of: float) -> SumOfPromotions | None:
    """Return the newest champion against the first version, since the last promotion; None without one.

    The sessions of the hold-out are accounted as measured: nothing is learnt from them.
    """
    if not resources.config.live.hold_out:
        return None
    since = last_promotion(resources.store)
    sessions = [each for each in account_held_out(resources.store) if each.started_at >= since]
    return sum_of_promotions(
        observe(resources.store, live_definition(resources.config.live), sessions, as_of), {}
    )
