"""One real-time cycle: collect → reward → train → bench → gate → A/B on live traffic → verdict → promote or
put the champion back.

A candidate that the gate does not admit never meets a developer; one that the A/B does not promote is taken
out of traffic. Then the champion's weights are published again, as a new version that is served and learnt
from.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ostinato.deploy.abtest import Claim
from ostinato.deploy.budget import next_alpha
from ostinato.deploy.gate import ALPHA, gate
from ostinato.deploy.traffic import split
from ostinato.loop.live import CHAMPION
from ostinato.loop.measure import measure, measurement
from ostinato.loop.practise import start_learner
from ostinato.loop.services import watch
from ostinato.loop.teach import last_line
from ostinato.loop.trial import ab_test, planned
from ostinato.loop.workshop import Result, Workshop
from ostinato.rewards.definition import LIVE
from ostinato.rollout.collect import Collector
from ostinato.store import Ledger
from ostinato.tasks.base import load_task
from ostinato.types import Arm, Decision, Task, new_id


async def cycle(shop: Workshop, champion: int, tasks: Sequence[Task], after: Result, as_of: float) -> Result:
    """Runs one cycle on what the developers left behind by `as_of`; gives its figures and the verdict.

    `after`: the champion's measurement on all of `tasks`, in as many passes as the candidate gets.
    """
    collected = await shop.stage("collect", lambda: collect(shop, as_of))
    trained = await shop.stage("refine", lambda: refine(shop, champion))
    candidate, passes = trained["version"], shop.config.bench.passes
    if candidate == champion:
        shop.show.say("no session could be learnt from: there is no candidate")
        return _without_candidate(collected, champion)
    benched = await shop.stage("gate", lambda: measure(shop, candidate, tasks, passes=passes))
    admitted = await shop.stage("admission", lambda: admit(shop, after, benched))
    if admitted["decision"] == Decision.ADMIT:
        trial = planned(shop.config.live, admitted["experiment"], admitted["alpha"])
        tested = await shop.stage("ab", lambda: ab_test(shop, champion, candidate, trial))
    else:
        tested = _untested(admitted)
    served = candidate
    if not Decision(tested["verdict"]).promotes:
        served = (await shop.stage("restore", lambda: restore(shop, champion)))["version"]
    return {
        "collected": collected,
        "candidate": candidate,
        "champion": served,
        "held_out": benched["scores"],
        "gate": {"decision": admitted["decision"], "reason": admitted["reason"]},
        **tested,
        "engines": {"gate": benched["engine"], **tested["engines"]},
    }


async def collect(shop: Workshop, as_of: float) -> Result:
    """The developers' sessions become rewards and groups of one."""
    harvest = Collector(shop.store, LIVE).harvest(CHAMPION, kinds(shop.run.tasks / "live"), as_of=as_of)
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
        before="practice",
    )
    log = shop.run.directory / "learner-live" / "learner.jsonl"
    with shop.show.stage("train on live sessions", total=versions) as bar:
        await watch(learner, lambda: bar.at(last_line(log).get("version", champion) - champion))
    Ledger(shop.store).close_out()
    return {"version": last_line(log)["version"]}


async def admit(shop: Workshop, after: Result, benched: Result) -> Result:
    """Whether the candidate may meet developers. The trial's id and error are settled here, before any of its
    sessions."""
    live, experiment, alpha = shop.config.live, new_id(), next_alpha(shop.store.verdicts())
    leans = Claim(live.claim) is Claim.CHEAPER  # what is promoted as no worse is so by this gate too
    verdict = gate(
        measurement(after),
        measurement(benched),
        margin=live.cheaper_solve_margin if leans else live.gate_margin,
        alpha=alpha if leans else ALPHA,
        experiment=experiment if leans else None,
    )
    shop.store.add_verdict(verdict)
    shop.show.say(f"gate: {verdict.decision} ({verdict.reason})")
    return {
        "decision": verdict.decision,
        "reason": verdict.reason,
        "experiment": experiment,
        "alpha": alpha,
    }


async def restore(shop: Workshop, champion: int) -> Result:
    """Publishes the champion's weights as the newest version, which is served from then on."""
    run = shop.run
    told = ("--store", str(run.store_path), "--objects", str(run.objects_path), "--version", str(champion))
    process = await shop.services.start("put-back", "ostinato.train.put_back", told, keep=False)
    await watch(process, lambda: None)
    version = max(row.version for row in shop.store.versions())
    engine = next(arm.engine for arm in shop.store.arms() if arm.name == CHAMPION)
    split(shop.store, [Arm(name=CHAMPION, version=version, share=1.0, engine=engine)])
    shop.show.say(f"version {version} has the weights of version {champion} again, which stays served")
    return {"version": version}


def kinds(directory: Path) -> dict[str, str]:
    """The kind of each task in `directory`, by the task's id; empty when there is no such directory."""
    found = directory.iterdir() if directory.exists() else ()
    return {path.name: load_task(path).kind for path in found}


def _untested(admitted: Result) -> Result:
    """The gate's decision is the verdict of a candidate that nobody met."""
    return {
        "verdict": admitted["decision"],
        "reason": admitted["reason"],
        "arms": {},
        "test": {},
        "engines": {},
    }


def _without_candidate(collected: Result, champion: int) -> Result:
    reason = "no session could be learnt from"
    nothing = _untested({"decision": Decision.HOLD, "reason": reason})
    gated = {"decision": Decision.HOLD, "reason": reason}
    return {
        "collected": collected,
        "candidate": champion,
        "champion": champion,
        "held_out": {},
        "gate": gated,
        **nothing,
    }
