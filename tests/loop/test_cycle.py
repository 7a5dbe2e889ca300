"""The cycle with everything real but the model: the skill of a version is scripted, learning is not.

Covers loop/cycle.py, loop/beside/front.py, loop/beside/served.py, loop/beside/trials.py,
loop/stages/learn.py, loop/stages/logged.py, loop/stages/measure.py, loop/stages/suite.py, loop/results.py and
loop/resources.py.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.deploy.test_lineage import version
from tests.resources import solves
from tests.store.builders import session, turn

from ostinato.bench.suite import seal
from ostinato.demo.developers import live_traffic
from ostinato.deploy.budget import FIRST_CHAIN, BudgetRule, level_of
from ostinato.deploy.control import say
from ostinato.deploy.late import promotions, settle_by_hand
from ostinato.deploy.release import widen
from ostinato.engine.config import EngineServerConfig
from ostinato.engine.http import Running
from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.harness.client import GatewayClient
from ostinato.harness.episode import EpisodeRunner
from ostinato.loop import results, trial
from ostinato.loop.beside.served import ServedChampion
from ostinato.loop.beside.trials import Trials
from ostinato.loop.config import BenchConfig, RunConfig, TasksConfig
from ostinato.loop.cycle import Cycle, cycles
from ostinato.loop.folder import open_run
from ostinato.loop.live_config import ARMS, LiveConfig
from ostinato.loop.resources import RunResources, open_resources
from ostinato.loop.results import Base, Champion, OpenedTrial, Turned
from ostinato.loop.run import START, Run
from ostinato.loop.show import Show
from ostinato.loop.stages.logged import LoggedStages
from ostinato.loop.stages.measure import HeldOutTasks, measure
from ostinato.loop.stages.prepare import load_wire, prepare
from ostinato.loop.stages.problems import held_out
from ostinato.loop.stages.suite import suite_of
from ostinato.loop.trial import planned
from ostinato.model.transcript import messages_of
from ostinato.rollout.collect import Harvest
from ostinato.store import Ledger, Objects
from ostinato.store.cycle_log import CycleAction, cycle_log
from ostinato.sync import Subscriber
from ostinato.tasks.pebble import Pebble, generate, provide
from ostinato.types import Arm, Decision, Ending, GenerateRequest, Source, Task

pytestmark = pytest.mark.slow
CHAMPION = 0
Skill = Callable[[int], float]
"""From a version to the share of its sessions that do what was asked."""

SMALL = RunConfig(
    tasks=TasksConfig(held_out={"seeds": 20, "names": 3, "pairs": 3, "larger": 3, "families": 3}),
    bench=BenchConfig(passes=1),
    live=LiveConfig(
        developers=32, sessions=32, versions=1, ab_sessions=96, canary_sessions=64, gate_margin=0.3
    ),
)


def pebble_of(task: Task) -> Pebble:
    _, kind, split, seed = task.id.split("-")
    return generate(kind, split, int(seed))


class Scripted:
    """A service that a script stands in for."""

    name = "scripted"
    restarts = 0
    up = True

    def __init__(self, site: Running, version: int) -> None:
        self.url = site.url
        self.version = version
        self.stop = site.close
        self.on_change: list[Callable[[], None]] = []
        self.on_moved: list[Callable[[], None]] = []


class Scene(RunResources):
    """A resources whose versions do what was asked as often as `skill` says."""

    skill: Skill
    tasks: dict[str, Task]

    def runner(self, client: GatewayClient, profile: str | None = None) -> EpisodeRunner:
        tasks = self.tasks

        class Noting(EpisodeRunner):
            async def attempt(self, task: Task, user: Any, *, session_id: str, **more: Any) -> Any:
                tasks[session_id] = task
                return await super().attempt(task, user, session_id=session_id, **more)

        return Noting(client, self.backend, self._verifier, self.config.harness)

    async def engine(self, name: str, settings: EngineServerConfig) -> Any:
        version = settings.version
        assert version is not None
        share = self.skill(version)
        tokenizer, renderer = load_wire(self.run.checkpoint(START))

        async def policy(request: GenerateRequest) -> tuple[int, ...]:
            messages = messages_of(tokenizer.decode(request.prompt_ids))
            turn = sum(message["role"] == "assistant" for message in messages)
            lucky = int(request.session_id[-4:], 16) / 16**4 < share
            pebble = pebble_of(self.tasks[request.session_id])
            text = solves(pebble, request.session_id, turn) if lucky else "done"
            return (*tokenizer.encode(text), renderer.stop_ids[0])

        site = await serve_scripted(ScriptedEngine(policy), secret=self.services.secret)
        service = Scripted(site, version)
        self.services._running.append(service)  # type: ignore[arg-type]
        return service


@asynccontextmanager
async def scene(directory: Path, skill: Skill, suite: Path | None = None) -> AsyncIterator[Scene]:
    shape = replace(SMALL.model.shape, hidden_size=16, heads=1, kv_heads=1, head_dim=8)
    bench = replace(SMALL.bench, suite=suite)
    config = replace(SMALL, model=replace(SMALL.model, shape=shape), bench=bench)
    run = open_run(Run(directory=directory / "run"), config, fresh=False).run
    await prepare(config, run)
    async with open_resources(config, run, Show(Console(quiet=True))) as resources:
        resources.__class__ = Scene
        assert isinstance(resources, Scene)
        resources.skill, resources.tasks = skill, {}
        yield resources


def a_person(resources: RunResources) -> None:
    """A session of somebody at a terminal: no task, no word on what became of it."""
    told = {"user": "grace", "arm": "champion", "source": Source.LIVE, "ending": Ending.FINISHED}
    resources.store.record([turn(0, "grace-1")], [], [replace(session("grace-1"), task_id=None, **told)])


def opened(candidate: int) -> OpenedTrial:
    experiment = f"trial-of-{candidate}"
    return OpenedTrial(candidate=candidate, champion=0, experiment=experiment, alpha=0.02, chain=FIRST_CHAIN)


@asynccontextmanager
async def beside(resources: Scene) -> AsyncIterator[Trials]:
    """What is before people, without a cycle beside it."""
    tasks = held_out(resources.config, resources.run)
    measured = await measure(resources, CHAMPION, tasks[:5], passes=1)
    first = Champion(version=CHAMPION, measured=measured)
    async with ServedChampion(resources) as served:
        yield Trials(resources, live_traffic(resources), HeldOutTasks(resources, tasks, first), served)


async def turned(resources: Scene, count: int = 1) -> Turned:
    tasks = held_out(resources.config, resources.run)
    a_person(resources)
    champion = Champion(version=CHAMPION, measured=await measure(resources, CHAMPION, tasks, passes=1))
    return await cycles(resources, live_traffic(resources), champion, tasks, count)


async def test_a_better_candidate_is_admitted_then_shown_to_be_better_and_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(trial.GUARDRAILS, "latency")  # latency is the machine's here
    async with scene(tmp_path, lambda version: 1.0 if version else 0.4) as resources:
        whole = await turned(resources)
        (cycled,), (tried,) = whole.cycles, whole.trials
        assert (cycled.candidate, cycled.decision) == (1, Decision.ADMIT), cycled.reason
        assert (tried.decision, whole.served.version) == (Decision.PROMOTE, 1), tried.reason
        (served,) = [arm for arm in resources.store.arms() if arm.share > 0]
        assert (served.name, served.version, served.experiment) == ("champion", 1, "")
        gate, shadowed, ab = resources.store.verdicts(1)
        assert shadowed.decision == Decision.ADMIT and "nobody saw" in shadowed.reason
        assert (gate.decision, ab.decision) == (Decision.ADMIT, Decision.PROMOTE)
        assert 0 < ab.evidence["alpha"] < 0.05 and "experiment" not in gate.evidence
        assert sum(ab.evidence["users"].values()) == 32 and 0 < ab.evidence["sessions"] <= 96
        assert tried.tested is not None and tried.tested.steps == ("canary", "split", "over")
        assert set(gate.evidence["changes"]) == {"seeds", "names", "pairs", "larger", "families"}
        assert Ledger(resources.store).unaccounted() == 0


async def test_who_was_sent_to_a_promoted_version_is_served_by_it_after_the_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the frozen tasks are measured, and when a process goes on that was killed there."""
    monkeypatch.delitem(trial.GUARDRAILS, "latency")
    met: list[tuple[int, float, list[int]]] = []

    async def looks(tasks: HeldOutTasks, newest: int, promotions: int) -> str:
        resources = tasks._resources
        running = {
            each.url: each.version for each in resources.services._running if isinstance(each, Scripted)
        }  # type: ignore[attr-defined]
        (arm,) = [each for each in resources.store.arms() if each.share > 0]
        met.append((arm.version, arm.share, [running[url] for url in arm.engines]))
        return ""

    monkeypatch.setattr(HeldOutTasks, "sum_of_promotions", looks)
    async with scene(tmp_path, lambda version: 1.0 if version else 0.4) as resources:
        whole = await turned(resources)
        assert whole.trials[0].decision is Decision.PROMOTE, whole.trials[0].reason
        for stage in ("trial-of-1", "trials-after-cycle-1"):
            (resources.run.directory / "stages" / f"{stage}.json").unlink()
        again = await turned(resources)
    assert (again.trials[0].decision, again.served.version) == (Decision.PROMOTE, 1)
    assert met == [(1, 1.0, [1])] * 2


@pytest.mark.parametrize(
    ("word", "kept"),
    [(CycleAction.PROMOTE, True), (CycleAction.PROMOTE, False), (CycleAction.ROLL_BACK, False)],
)
async def test_a_release_that_had_begun_goes_on_after_a_word_and_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: CycleAction, kept: bool
) -> None:
    decided = Decision.PROMOTE if word is CycleAction.PROMOTE else Decision.ROLL_BACK
    tested = results.Tested(
        decision=decided, reason="ada", steps=("canary", "over"), arms={}, evidence={}, engine={}
    )

    async def released(trials: Trials, *_: Any) -> results.Tested:
        return tested

    monkeypatch.setattr(Trials, "_release", released)
    async with scene(tmp_path, lambda version: 0.5) as resources:
        resources.config = replace(resources.config, live=replace(resources.config.live, shadow_requests=0))
        if kept:
            resources.run.finish("trial-of-1/release", tested, 0.0)
        arms = [Arm(name=name, version=n, share=1.0 - n, engines=()) for n, name in enumerate(ARMS)]
        resources.store.set_arms(arms)
        stages = LoggedStages(resources, "trial-of-1")
        stages.control.log(CycleAction.TRIAL_OPENED, "version 1 against version 0")
        stages.control.log(CycleAction.STAGE_BEGAN, "release")
        plan = planned(resources.config.live, "trial-of-1", 0.02)
        champion, challenger = (replace(each, experiment="trial-of-1") for each in resources.store.arms())
        widen(resources.store, plan, 0, (champion, challenger))
        assert say(resources.store, word, "ada", "the customer waits").cycle == "trial-of-1"
        async with beside(resources) as trials:
            tried = await trials._meet(opened(1), stages)
    assert tried.decision is decided and tried.tested == tested


async def test_a_word_before_anybody_met_a_candidate_gives_it_up(tmp_path: Path) -> None:
    async with scene(tmp_path, lambda version: 0.5) as resources:
        resources.config = replace(resources.config, live=replace(resources.config.live, shadow_requests=0))
        stages = LoggedStages(resources, "trial-of-1")
        stages.control.log(CycleAction.TRIAL_OPENED, "version 1 against version 0")
        say(resources.store, CycleAction.ABORT, "ada", "the disk is full")
        async with beside(resources) as trials:
            tried = await trials._meet(opened(1), stages)
    assert (tried.decision, tried.met) == (Decision.ROLL_BACK, False) and "ada said abort" in tried.reason


async def test_a_worse_candidate_meets_nobody(tmp_path: Path) -> None:
    async with scene(tmp_path, lambda version: 0.0 if version else 0.9) as resources:
        whole = await turned(resources)
        (cycled,) = whole.cycles
        assert cycled.decision == Decision.ROLL_BACK and cycled.judged is not None
        assert (whole.trials, whole.served.version) == ((), 0)
        (served,) = [arm for arm in resources.store.arms() if arm.share > 0]
        assert (served.name, served.version) == ("champion", 0)
        assert not resources.store.sessions(arm="challenger")
        champion = Champion(version=CHAMPION, measured=cycled.judged.benched)
        traffic = live_traffic(resources)
        again = await cycles(resources, traffic, champion, [], 1)  # a finished run's stages are read
        assert again == whole and len(resources.store.verdicts()) == 1


def small_suite(folder: Path) -> Path:
    """Seal two tasks in Harbor's form."""
    for seed in range(2):
        pebble = generate("fix", "seeds", 1000 + seed)
        provide(pebble, folder / pebble.id)
    seal(folder, "own")
    return folder


async def test_the_gate_of_a_cycle_reads_the_suite(tmp_path: Path) -> None:
    """A candidate that the run's own tasks admit is held, since two more tasks show nothing either way."""
    async with scene(
        tmp_path, lambda version: 1.0 if version else 0.4, small_suite(tmp_path / "own")
    ) as resources:
        whole = await turned(resources)
        (cycled,) = whole.cycles
        assert (cycled.decision, whole.trials) == (Decision.HOLD, ()), cycled.reason
        (gate,) = resources.store.verdicts()
        assert gate.evidence["suite"].startswith("own 1, hash ")
        assert (
            "seeds of the suite" in gate.evidence["changes"] and "correct/tampered" in gate.evidence["axes"]
        )
        own = {session.task_id for session in resources.store.sessions(source=Source.BENCH)}
        assert {folder.name for folder in (tmp_path / "own").iterdir() if folder.is_dir()} <= own
        assert Ledger(resources.store).unaccounted() == 0


async def test_a_trial_has_one_level_though_a_kill_came_after_the_gate_s_verdict(tmp_path: Path) -> None:
    """Also where people meet both arms, and the trial's name ends in a secret."""
    async with scene(tmp_path, lambda version: 0.5) as resources:
        live = replace(resources.config.live, claim="cheaper", assign="session", looks=0)
        resources.config = replace(resources.config, live=live)
        measured = await measure(resources, CHAMPION, held_out(resources.config, resources.run)[:5], passes=1)
        async with beside(resources) as trials:
            cycle = Cycle(resources, live_traffic(resources), trials._tasks, trials, [])
            first, again = [await cycle._admit(CHAMPION, measured, measured) for _ in range(2)]
        assert first == again and len(resources.store.verdicts()) == 1
        (gate,) = resources.store.verdicts()
        level = gate.evidence["alpha"], gate.evidence["chain"]
        assert level_of(resources.store, CHAMPION, BudgetRule.DISCOVERIES) == level
        assert level_of(resources.store, 9, BudgetRule.DISCOVERIES)[0] < level[0]


async def test_a_suite_is_done_by_both_versions_and_by_neither_twice(tmp_path: Path) -> None:
    async with scene(
        tmp_path, lambda number: float(number > 0), small_suite(tmp_path / "suite")
    ) as resources:
        for number in (CHAMPION, 1):
            resources.store.add_version(version(number, None))
        found = await suite_of(resources, CHAMPION, 1)
        assert found is not None and found.suite.startswith("own 1, hash ")
        assert found.splits["seeds"].value == 1.0 and found.measures["correct/broken"].value == 0.0
        sessions = resources.store.sessions(source=Source.BENCH)
        assert len(sessions) == 2 * 2 * resources.config.bench.suite_passes
        assert await suite_of(resources, CHAMPION, 1) is not None
        assert resources.store.sessions(source=Source.BENCH) == sessions
        assert Ledger(resources.store).unaccounted() == 0


async def test_a_cycle_after_a_roll_back_is_an_ordinary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 1 is worse, and refused or rolled back; version 2 is version 0 again; version 3 is better."""
    monkeypatch.delitem(trial.GUARDRAILS, "latency")
    skills = {0: 0.4, 1: 0.0, 2: 0.4, 3: 1.0}
    async with scene(tmp_path, lambda version: skills[version]) as resources:
        whole = await turned(resources, count=2)
        first, second = whole.cycles
        assert (first.base, first.candidate) == (Base(champion=0, version=0), 1)
        assert all(not each.decision.promotes for each in whole.trials[:-1])
        assert (second.base, second.candidate) == (Base(champion=0, version=2), 3)
        last = whole.trials[-1]
        assert (last.opened.candidate, last.decision) == (3, Decision.PROMOTE), last.reason
        assert whole.served.version == 3 and second.collected.offered >= 32
        (served,) = [arm for arm in resources.store.arms() if arm.share > 0]
        assert (served.name, served.version) == ("champion", 3)
        ledger = Ledger(resources.store)
        assert ledger.unaccounted() == ledger.trained_twice() == ledger.unended() == 0
        parents = {row.version: row.parent for row in resources.store.versions()}
        assert parents == {0: None, 1: 0, 2: 0, 3: 2}


async def test_a_candidate_of_the_champion_before_is_superseded_and_its_sessions_are_learnt_from_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 1 is promoted while the next cycle has trained version 3 on the old champion."""
    monkeypatch.delitem(trial.GUARDRAILS, "latency")
    async with scene(tmp_path, lambda version: 1.0 if version else 0.4) as resources:
        real, gated = Trials._try, asyncio.Event()

        async def tries(trials: Trials, opened: OpenedTrial) -> None:
            if opened.candidate == 1:
                await gated.wait()  # the trial goes on until the next cycle is over
            await real(trials, opened)

        def stirs(trials: Trials) -> None:
            if "cycle-2" in trials.front.cycles():
                gated.set()
            stir(trials)

        async def collects(cycle: Cycle) -> Harvest:
            while cycle._stages.name == "cycle-3" and not superseded(resources):
                await asyncio.sleep(0.05)
            return await collect(cycle)

        stir, collect = Trials.stir, Cycle._collect
        monkeypatch.setattr(Trials, "_try", tries)
        monkeypatch.setattr(Trials, "stir", stirs)
        monkeypatch.setattr(Cycle, "_collect", collects)
        whole = await turned(resources, count=3)
        _, second, third = whole.cycles
        assert (second.base.champion, second.candidate, second.decision) == (0, 3, Decision.ADMIT)
        assert whole.trials[0].decision is Decision.PROMOTE, whole.trials[0].reason
        assert superseded(resources) == [
            ("cycle-2", "version 3 is superseded: version 1 is the champion now")
        ]
        assert third.base.champion == 1
        assert third.collected.offered >= 32 + second.collected.offered
        ledger = Ledger(resources.store)
        assert ledger.unaccounted() == ledger.trained_twice() == ledger.unended() == 0


def superseded(resources: Scene) -> list[tuple[str, str]]:
    return [(e.cycle, e.detail) for e in cycle_log(resources.store) if e.action is CycleAction.SUPERSEDED]


async def test_what_a_demoted_promotion_replaced_is_served_and_learnt_from_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 1 is promoted and demoted; version 2 is version 0 again; version 3 is compared with that."""
    monkeypatch.delitem(trial.GUARDRAILS, "latency")
    skills = {0: 0.5, 1: 1.0, 2: 0.5, 3: 0.0}
    async with scene(tmp_path, lambda version: skills[version]) as resources:
        before = await turned(resources)
        assert (before.trials[0].decision, before.served.version) == (Decision.PROMOTE, 1)
        assert [each.standing for each in promotions(resources.store)] == ["provisional"]
        settle_by_hand(resources.store, 1, Decision.DEMOTE, "ada", "undone after days")
        whole = await turned(resources, count=2)
        _, second = whole.cycles
        assert second.base == Base(champion=0, version=2) and second.candidate == 3
        assert whole.served.version == 0
        assert [each.standing for each in promotions(resources.store)] == ["demoted, put back"]
        objects = Subscriber(Objects.open(str(resources.run.objects_path)))
        roots = [objects.manifest(version).state_root for version in range(4)]
        assert roots[0] == roots[2] != roots[1] and Ledger(resources.store).trained_twice() == 0
