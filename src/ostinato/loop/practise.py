"""Practice by policy gradient: the actor samples and the learner trains at the same time, each in its own
process.
"""

from typing import Any

from ostinato.loop.measure import pebbles
from ostinato.loop.services import Service, alongside, watch
from ostinato.loop.teach import last_line
from ostinato.loop.workshop import START, Workshop
from ostinato.rewards.definition import PRACTICE
from ostinato.rollout.practice import Practice
from ostinato.store.ledger import Ledger
from ostinato.types import Arm


async def practise(shop: Workshop) -> dict[str, Any]:
    """Trains until the last version is published; the engine swaps each one in as it comes."""
    config, log = shop.config, shop.run.directory / "learner-practice" / "learner.jsonl"
    engine = await shop.engine("engine-practice", "--follow")
    shop.put_arm(Arm(name="practice", version=0, share=0.0, engine=engine.url))
    runner = shop.runner(shop.client("practice", "practice"))
    practice = Practice(runner, shop.store, PRACTICE, shop.run.tasks / "practice", config.practice)
    refine = config.refine
    learner = await start_learner(
        shop, "practice", until=refine.versions, groups=refine.groups, learning_rate=refine.learning_rate
    )
    learning = True
    stream = pebbles("train", config.seed * 1_000_000 + 500_000)
    with shop.show.stage("practice", total=refine.versions) as bar:

        def tick() -> None:
            recent = practice.progress.recent
            rate = sum(recent) / max(1, len(recent))
            bar.at(
                last_line(log).get("version", 0),
                f"{practice.progress.sessions} sessions, {rate:.0%} solved of the latest",
            )

        async with alongside(practice.run(stream, lambda: not learning)) as acting:
            await watch(learner, tick, [acting])
            learning = False
    Ledger(shop.store).close_out()
    stats = await shop.stats(engine)
    await shop.services.stop(engine)
    return {
        "version": last_line(log)["version"],
        "sessions": practice.progress.sessions,
        "void": practice.progress.void,
        "untrainable": practice.progress.untrainable,
        "engine": stats,
    }


async def start_learner(
    shop: Workshop,
    name: str,
    *,
    until: int,
    groups: int | None,
    learning_rate: float,
    before: str | None = None,
) -> Service:
    """The policy-gradient learner, going on from the newest version to version `until`.

    `groups`: those in one version; None spreads the groups that wait over all of them. `before`: the learner
    whose second moments it begins with.
    """
    run, staleness = shop.run, shop.config.refine.staleness
    folder = run.directory / f"learner-{name}"
    return await shop.services.start(
        f"learner-{name}",
        "ostinato.train.learner",
        [
            *("--store", str(run.store_path), "--objects", str(run.objects_path)),
            *("--checkpoint", str(run.checkpoint(START)), "--run-dir", str(folder)),
            *("--until", str(until), "--staleness", str(staleness)),
            *(("--spread",) if groups is None else ("--groups", str(groups))),
            *("--learning-rate", str(learning_rate)),
            *(() if before is None else ("--before", str(run.directory / f"learner-{before}"))),
        ],
        keep=False,
    )
