"""Practice by policy gradient: the reconciler samples and the learner trains, each in its own process, at the
same time or, in synchronous runs, in turns."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ostinato.harness.episode import EpisodeRunner
from ostinato.harness.outside.runner import OutsideRunner
from ostinato.loop.config import practice_definition
from ostinato.loop.results import Counters, Practised
from ostinato.loop.run import START
from ostinato.loop.services import Service, alongside, watch
from ostinato.loop.stages.learn import last_line, start_learner
from ostinato.loop.stages.prepare import load_wire
from ostinato.loop.stages.problems import stream
from ostinato.loop.stages.stalled import Stalled
from ostinato.loop.workshop import Workshop
from ostinato.rewards.practice.definition import PracticeReward
from ostinato.rollout.reconciler import Reconciler, Training
from ostinato.rollout.sampling import SlotWork
from ostinato.store.definitions import keep_definition
from ostinato.store.ledger.account import state_root
from ostinato.store.ledger.ledger import Ledger
from ostinato.store.ledger.phases import Phase
from ostinato.store.ledger.slot_rows import SlotState
from ostinato.store.ledger.slots import Slots
from ostinato.types import Arm, State


async def practise(shop: Workshop) -> Practised:
    """Train until the last version is published; the engine swaps each one in as it comes."""
    config = shop.config
    log, versions = shop.run.directory / "learner-practice" / "learner.jsonl", config.refine.versions
    assert versions is not None  # `config.check` has refused anything else
    arm = Arm(name="practice", version=0, share=0.0, engines=())
    async with shop.serving(arm, follow=True) as engine:
        reconciler = _reconciler(shop, engine, versions)
        steps = replace(config.refine, versions=None)
        learner = await start_learner(shop, "practice", steps, until=versions)
        learning, stalled = True, Stalled(config.refine.groups)
        with shop.show.stage("practice", total=versions) as bar:

            def tick() -> None:
                version = last_line(log).get("version", 0)
                if stalled.notice(version, _ready(shop)):
                    learner.kill()
                recent = reconciler.progress.recent
                rate = sum(recent) / max(1, len(recent))
                bar.at(
                    version,
                    f"{reconciler.progress.groups} groups, {rate:.0%} solved of the latest",
                )

            async with alongside(reconciler.run(stream(config, "practice"), lambda: not learning)) as acting:
                await watch(learner, tick, [acting])
                learning = False
        return _practised(shop, last_line(log), await shop.counters(engine))


def _ready(shop: Workshop) -> int:
    """Return the number of groups that the trainer could be working on."""
    phases = Slots(shop.store).phases()
    return phases[Phase.OFFERED] + phases[Phase.CLAIMED]


def _reconciler(shop: Workshop, engine: Service, versions: int) -> Reconciler:
    config = shop.config
    training = Training(
        batch=config.refine.groups,
        staleness=config.refine.staleness,
        until=versions,
        baseline=config.refine.policy.baseline,
    )

    return Reconciler(
        SlotWork(_runner(shop), config.practice),
        shop.store,
        _reward(shop),
        shop.run.tasks / "practice",
        training,
        seed=config.seed,
        served=lambda: shop.served(engine),
    )


def _practised(shop: Workshop, line: Mapping[str, Any], engine: Counters) -> Practised:
    """Close the ledger, and return what came of practice, read from the rows of all processes that worked."""
    ledger = Ledger(shop.store)
    ledger.close_out()
    slots = Slots(shop.store)
    return Practised(
        version=line["version"],
        sessions=slots.entered()[SlotState.FINISHED],
        void=slots.tried_again(),
        untrainable=ledger.states()[State.UNTRAINABLE],
        root=state_root(shop.store, line["weights"]),
        engine=engine,
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
