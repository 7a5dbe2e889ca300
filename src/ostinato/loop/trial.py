"""The A/B of one candidate: users are dealt, their sessions become observations, a verdict is reached and
done.

Nobody stays on a version that was not promoted.
"""

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean

from ostinato.deploy.abtest import Claim, Guardrail, Trial, TrialSession, judge
from ostinato.deploy.traffic import promote, roll_back, split
from ostinato.loop.config import LiveConfig
from ostinato.loop.live import CHALLENGER, CHAMPION, settled, work
from ostinato.loop.workshop import Result, Workshop
from ostinato.rewards.definition import LIVE
from ostinato.store import Ledger, Store
from ostinato.types import Arm, Ending, Session, Signal, SignalKind, Source, State, Turn, Verdict

GUARDRAILS = (
    Guardrail(name="complaints", limit=0.1),
    Guardrail(name="abandoned", limit=0.1),
    Guardrail(name="broken", limit=0.1),
    Guardrail(name="latency", limit=math.log(1.5)),
)
"""The first three are shares of sessions; the last is the logarithm of a turn's latency, so half as much
again is too much."""


def planned(live: LiveConfig, experiment: str, alpha: float) -> Trial:
    """What the run's settings say of a trial."""
    claim = Claim(live.claim)
    return Trial(
        experiment=experiment,
        share=live.challenger_share,
        horizon=live.developers * live.ab_sessions_each,
        alpha=alpha,
        claim=claim,
        margin=live.cheaper_reward_margin if claim is Claim.CHEAPER else 0.0,
        guardrails=GUARDRAILS,
        champion=CHAMPION,
        challenger=CHALLENGER,
    )


async def ab_test(shop: Workshop, champion: int, candidate: int, trial: Trial) -> Result:
    """Splits the developers between both versions, judges, and acts on the verdict.

    One that was interrupted goes on as the same trial: what its users did counts, and is accounted for.
    """
    engines = {
        name: await shop.engine(f"engine-{name}", "--version", str(version))
        for name, version in ((CHAMPION, champion), (CHALLENGER, candidate))
    }
    arms = [
        Arm(
            name=name,
            version=version,
            share=share,
            engine=engines[name].url,
            experiment=trial.experiment,
        )
        for name, version, share in (
            (CHAMPION, champion, 1 - trial.share),
            (CHALLENGER, candidate, trial.share),
        )
    ]
    started = (await shop.stage("dealt", _now))["at"]
    split(shop.store, arms)
    await work(shop, "ab", shop.config.live.ab_sessions_each, first_seed=700_000)
    observations, verdict = decide(shop.store, candidate, trial, since=started, as_of=settled())
    act = promote if verdict.decision.promotes else roll_back
    act(shop.store, arms)
    stats = {name: await shop.stats(engine) for name, engine in engines.items()}
    for engine in engines.values():
        await shop.services.stop(engine)
    shop.show.say(f"A/B: {verdict.decision} ({verdict.reason})")
    return {
        "verdict": verdict.decision,
        "reason": verdict.reason,
        "arms": {arm.name: summary(arm, observations) for arm in arms},
        "test": dict(verdict.evidence),
        "engines": stats,
    }


async def _now() -> Result:
    return {"at": time.time()}


def decide(
    store: Store, candidate: int, trial: Trial, *, since: float, as_of: float
) -> tuple[list[TrialSession], Verdict]:
    """The trial's observations and the verdict on them, which is recorded."""
    sessions = [
        session
        for arm in (trial.champion, trial.challenger)
        for session in store.sessions(source=Source.LIVE, arm=arm, ended=True, since=since)
    ]
    Ledger(store).account_sessions([session.id for session in sessions], State.MEASURED)
    observations = observe(store, sessions, as_of)
    verdict = judge(candidate, trial, observations, usual(store, before=since, as_of=as_of))
    store.add_verdict(verdict)
    return observations, verdict


def observe(store: Store, sessions: Iterable[Session], as_of: float) -> list[TrialSession]:
    """What each session was worth at the end of its attribution window; one whose window is open does not
    count yet, and none of what our own failure ended."""
    ours = [session for session in sessions if session.ending is not Ending.INFRASTRUCTURE]
    ids = [session.id for session in ours]
    turns, signals = store.turns_of(ids), store.signals_of(ids)
    found = (_observed(s, turns.get(s.id, []), signals.get(s.id, []), as_of) for s in ours)
    return [observation for observation in found if observation is not None]


def _observed(
    session: Session, turns: Sequence[Turn], signals: Sequence[Signal], as_of: float
) -> TrialSession | None:
    reward = LIVE.settled(session.id, turns, signals, as_of=as_of)
    if reward is None:
        return None
    said = {s.kind for s in signals if s.observed_at <= LIVE.settles_at(turns) and s.value != 0.0}
    left = SignalKind.ABANDONED in said or session.ending is Ending.ABANDONED
    return TrialSession(
        arm=session.arm,
        user=session.user,
        at=session.started_at,
        value=reward.total,
        tokens=float(sum(len(turn.completion.ids) for turn in turns)),
        harms={
            "complaints": float(SignalKind.COMPLAINT in said),
            "abandoned": float(left),
            "broken": float(any(part.name == "broken" and part.value < 0 for part in reward.parts)),
            "latency": fmean(math.log(max(turn.latency_s, 1e-3)) for turn in turns),
        },
    )


def usual(store: Store, before: float, as_of: float) -> dict[str, float]:
    """By user, the mean reward of their live sessions that began before the trial."""
    sessions = store.sessions(source=Source.LIVE, ended=True)
    worth = defaultdict(list)
    for observation in observe(store, [s for s in sessions if s.started_at < before], as_of):
        worth[observation.user].append(observation.value)
    return {user: fmean(values) for user, values in worth.items()}


def summary(arm: Arm, observations: Sequence[TrialSession]) -> Result:
    """One arm's own figures: who was on it and what a session was worth to them, on average."""
    mine = [observation for observation in observations if observation.arm == arm.name]
    users = {observation.user for observation in mine}
    mean = sum(observation.value for observation in mine) / max(1, len(mine))
    return {"version": arm.version, "sessions": len(mine), "users": len(users), "mean_reward": round(mean, 4)}
