"""Practice by policy gradient: the actor samples and the learner trains at the same time, each in its own
process."""

from dataclasses import replace

from ostinato.harness.episode import EpisodeRunner
from ostinato.harness.outside.runner import OutsideRunner
from ostinato.loop.config import practice_definition
from ostinato.loop.results import Practised
from ostinato.loop.run import START
from ostinato.loop.services import alongside, watch
from ostinato.loop.stages.learn import last_line, start_learner
from ostinato.loop.stages.prepare import load_wire
from ostinato.loop.stages.problems import stream
from ostinato.loop.workshop import Workshop
from ostinato.rewards.practice.definition import PracticeReward
from ostinato.rollout.practice import Practice
from ostinato.store.definitions import keep_definition
from ostinato.store.ledger.ledger import Ledger
from ostinato.types import Arm


async def practise(shop: Workshop) -> Practised:
    """Train until the last version is published; the engine swaps each one in as it comes."""
    config = shop.config
    log, versions = shop.run.directory / "learner-practice" / "learner.jsonl", config.refine.versions
    assert versions is not None  # `config.check` has refused anything else
    arm = Arm(name="practice", version=0, share=0.0, engines=())
    async with shop.serving(arm, follow=True) as engine:
        practice = Practice(
            _runner(shop), shop.store, _reward(shop), shop.run.tasks / "practice", config.practice
        )
        steps = replace(config.refine, versions=None)
        learner = await start_learner(shop, "practice", steps, until=versions)
        learning = True
        with shop.show.stage("practice", total=versions) as bar:

            def tick() -> None:
                recent = practice.progress.recent
                rate = sum(recent) / max(1, len(recent))
                bar.at(
                    last_line(log).get("version", 0),
                    f"{practice.progress.sessions} sessions, {rate:.0%} solved of the latest",
                )

            async with alongside(practice.run(stream(config, "practice"), lambda: not learning)) as acting:
                await watch(learner, tick, [acting])
                learning = False
        Ledger(shop.store).close_out()
        return Practised(
            version=last_line(log)["version"],
            sessions=practice.progress.sessions,
            void=practice.progress.void,
            untrainable=practice.progress.untrainable,
            engine=await shop.counters(engine),
        )


def _reward(shop: Workshop) -> PracticeReward:
    """Return practice's reward; the text of its definition is kept under its hash."""
    definition = practice_definition(shop.config.practice)
    keep_definition(shop.store, definition.hash(), definition.text())
    return PracticeReward(definition, load_wire(shop.run.checkpoint(START))[1])


def _runner(shop: Workshop) -> EpisodeRunner | OutsideRunner:
    outside = shop.config.practice.outside
    if outside.harness:
        return shop.outside_runner("practice", "practice", outside)
    return shop.runner(shop.client("practice", "practice"))
