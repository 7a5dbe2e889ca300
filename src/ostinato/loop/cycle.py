"""One real-time cycle: collect → reward → train → bench → gate → A/B on live traffic → verdict → promote or
roll back.

A candidate that fails the gate never meets a developer; one that fails the A/B is taken out of traffic.
"""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean

from ostinato.deploy.abtest import Observation, judge
from ostinato.deploy.gate import gate
from ostinato.deploy.traffic import promote, roll_back, split
from ostinato.loop.live import CHALLENGER, CHAMPION, work
from ostinato.loop.measure import measure
from ostinato.loop.practise import start_learner
from ostinato.loop.services import watch
from ostinato.loop.teach import last_line
from ostinato.loop.workshop import Result, Workshop
from ostinato.rewards.definition import LIVE
from ostinato.rollout.collect import Collector
from ostinato.store.ledger import Ledger
from ostinato.tasks.base import load_task
from ostinato.types import Arm, Decision, Report, Score, Session, Source, State, Task, Verdict


async def cycle(shop: Workshop, champion: int, tasks: Sequence[Task], after: Result) -> Result:
    """Runs one cycle on what the developers left behind; gives its figures and the verdict."""
    collected = await shop.stage("collect", lambda: collect(shop))
    trained = await shop.stage("refine", lambda: refine(shop, champion))
    held_out = [task for task in tasks if task.split == "seeds"]
    benched = await shop.stage("gate", lambda: measure(shop, trained["version"], held_out))
    gated = judged_at_the_gate(shop, after, benched)
    tested = await shop.stage("ab", lambda: ab_test(shop, champion, gated))
    return {
        "collected": collected,
        "candidate": trained["version"],
        "held_out": benched["scores"],
        "gate": {"decision": gated.decision, "reason": gated.reason},
        **tested,
        "engines": {"gate": benched["engine"], **tested["engines"]},
    }


async def collect(shop: Workshop) -> Result:
    """The developers' sessions become rewards and groups of one."""
    harvest = Collector(shop.store, LIVE).harvest(CHAMPION, kinds(shop, "live"))
    shop.show.say(
        f"collected {harvest.sessions} sessions and {harvest.signals} signals, "
        f"mean reward {harvest.mean_reward:.2f}"
    )
    return asdict(harvest)


async def refine(shop: Workshop, champion: int) -> Result:
    """The learner goes on from the champion; gives the candidate's version, which is the champion's when
    there was nothing to learn from."""
    live = shop.config.live
    versions = live.versions
    learner = await start_learner(
        shop,
        "live",
        until=champion + versions,
        groups=None,
        learning_rate=live.learning_rate,
    )
    log = shop.run.directory / "learner-live" / "learner.jsonl"
    with shop.show.stage("train on live sessions", total=versions) as bar:
        await watch(learner, lambda: bar.at(last_line(log).get("version", champion) - champion))
    Ledger(shop.store).close_out()
    return {"version": last_line(log)["version"]}


def judged_at_the_gate(shop: Workshop, after: Result, benched: Result) -> Verdict:
    """Whether the candidate may meet developers: it must not be worse on the same held-out tasks."""
    n = len(benched["solved"])
    paired = {"seeds": (after["solved"][:n], benched["solved"])}
    verdict = gate(_report(after), _report(benched), margin=shop.config.live.gate_margin, paired=paired)
    shop.store.add_verdict(verdict)
    shop.show.say(f"gate: {verdict.decision} ({verdict.reason})")
    return verdict


async def ab_test(shop: Workshop, champion: int, gated: Verdict) -> Result:
    """Splits the developers between both versions, judges, and acts on the verdict.

    A candidate that the gate held back never meets them: the gate's verdict is the verdict.
    """
    if gated.decision is not Decision.PROMOTE:
        return {"verdict": gated.decision, "reason": gated.reason, "arms": {}, "test": {}, "engines": {}}
    candidate = gated.version
    live, started = shop.config.live, time.time()
    engines = {
        name: await shop.engine(f"engine-{name}", "--version", str(version))
        for name, version in ((CHAMPION, champion), (CHALLENGER, candidate))
    }
    arms = [
        Arm(name=CHAMPION, version=champion, share=1 - live.challenger_share, engine=engines[CHAMPION].url),
        Arm(name=CHALLENGER, version=candidate, share=live.challenger_share, engine=engines[CHALLENGER].url),
    ]
    split(shop.store, arms)
    await work(shop, "ab", live.ab_sessions_each, first_seed=700_000)
    observations = observe(shop, started, usual_rewards(shop, before=started))
    verdict = judge(candidate, observations, champion=CHAMPION, challenger=CHALLENGER, margin=live.ab_margin)
    shop.store.add_verdict(verdict)
    act = promote if verdict.decision is Decision.PROMOTE else roll_back
    act(shop.store, arms)  # the test is over: nobody stays on a version that did not win
    stats = {name: await shop.stats(engine) for name, engine in engines.items()}
    for engine in engines.values():
        await shop.services.stop(engine)
    return {
        "verdict": verdict.decision,
        "reason": verdict.reason,
        "arms": {arm.name: summary(arm, observations) for arm in arms},
        "test": dict(verdict.evidence),
        "engines": stats,
    }


def summary(arm: Arm, observations: Sequence[Observation]) -> Result:
    """One arm's own figures: who was on it and what a session was worth to them, on average."""
    mine = [observation for observation in observations if observation.arm == arm.name]
    users = {observation.user for observation in mine}
    mean = sum(observation.value for observation in mine) / max(1, len(mine))
    return {"version": arm.version, "sessions": len(mine), "users": len(users), "mean_reward": round(mean, 4)}


def observe(shop: Workshop, since: float, usual: Mapping[str, float]) -> list[Observation]:
    """What each developer's sessions of the test were worth; they score and are never trained on.

    `usual`: by kind of task, what such a session was worth before the test.
    """
    sessions = [
        session
        for arm in (CHAMPION, CHALLENGER)
        for session in shop.store.sessions(source=Source.LIVE, arm=arm, ended=True, since=since)
    ]
    Ledger(shop.store).account_sessions([session.id for session in sessions], State.MEASURED)
    worth, asked = rewards_of(shop, sessions), kinds(shop, "ab")
    return [
        Observation(arm=s.arm, user=s.user, value=worth[s.id], expected=usual.get(asked[str(s.task_id)], 0.0))
        for s in sessions
        if s.id in worth
    ]


def usual_rewards(shop: Workshop, before: float) -> dict[str, float]:
    """The mean reward of each kind of task among the champion's sessions that began `before`."""
    all_of_it = shop.store.sessions(source=Source.LIVE, arm=CHAMPION, ended=True)
    sessions = {session.id: session for session in all_of_it if session.started_at < before}
    asked, found = kinds(shop, "live"), defaultdict(list)
    for id, worth in rewards_of(shop, list(sessions.values())).items():
        found[asked[str(sessions[id].task_id)]].append(worth)
    return {kind: fmean(values) for kind, values in found.items()}


def rewards_of(shop: Workshop, sessions: Sequence[Session]) -> dict[str, float]:
    """The live reward of each session that has turns."""
    ids = [session.id for session in sessions]
    turns, signals = shop.store.turns_of(ids), shop.store.signals_of(ids)
    return {id: LIVE.score(id, turns[id], signals.get(id, [])).total for id in ids if id in turns}


def kinds(shop: Workshop, name: str) -> dict[str, str]:
    """The kind of each task that developers had in this stage, by the task's id."""
    return {path.name: load_task(path).kind for path in (shop.run.tasks / name).iterdir()}


def _report(benched: Result) -> Report:
    scores = {split: Score(**score) for split, score in benched["scores"].items()}
    told = {name: benched[name] for name in ("version", "rates", "harness")}
    return Report(**told, scores=scores, id=benched["report"])
