"""The cycle with everything real but the model: the skill of a version is scripted, learning is not.

Covers loop/cycle.py, loop/stages/learn.py, loop/stages/measure.py, loop/stages/suite.py, loop/results.py and
loop/resources.py.
"""

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
from ostinato.deploy.control import CycleControl, say
from ostinato.deploy.late import promotions, settle_by_hand
from ostinato.deploy.release import widen
from ostinato.engine.http import Running
from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.harness.client import GatewayClient
from ostinato.harness.episode import EpisodeRunner
from ostinato.loop import results, trial
from ostinato.loop.config import BenchConfig, RunConfig, TasksConfig
from ostinato.loop.cycle import Cycle, cycles, measured_last
from ostinato.loop.folder import open_run
from ostinato.loop.live_config import ARMS, LiveConfig
from ostinato.loop.resources import RunResources, open_resources
from ostinato.loop.results import Admission, Champion, Cycled
from ostinato.loop.run import START, Run
from ostinato.loop.show import Show
from ostinato.loop.stages.measure import HeldOutTasks, measure
from ostinato.loop.stages.prepare import load_wire, prepare
from ostinato.loop.stages.problems import held_out
from ostinato.loop.stages.suite import suite_of
from ostinato.loop.trial import planned
from ostinato.model.transcript import messages_of
from ostinato.store import Ledger, Objects
from ostinato.store.cycle_log import CycleAction
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

    async def engine(self, name: str, version: int | None) -> Any:
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


async def turned(resources: Scene, count: int = 1) -> list[Cycled]:
    tasks = held_out(resources.config, resources.run)
    a_person(resources)
    champion = Champion(version=CHAMPION, measured=await measure(resources, CHAMPION, tasks, passes=1))
    return await cycles(resources, live_traffic(resources), champion, tasks, count)


async def test_a_better_candidate_is_admitted_then_shown_to_be_better_and_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(trial.GUARDRAILS, "latency")  # latency is the machine's here
    async with scene(tmp_path, lambda version: 1.0 if version else 0.4) as resources:
        (cycled,) = await turned(resources)
        assert cycled.candidate == 1 and cycled.judged is not None
        assert cycled.judged.admission.decision == Decision.ADMIT
        assert (cycled.decision, cycled.champion) == (Decision.PROMOTE, 1), cycled.reason
        (served,) = [arm for arm in resources.store.arms() if arm.share > 0]
        assert (served.name, served.version, served.experiment) == ("champion", 1, "")
        gate, shadowed, ab = resources.store.verdicts(1)
        assert shadowed.decision == Decision.ADMIT and "nobody saw" in shadowed.reason
        assert (gate.decision, ab.decision) == (Decision.ADMIT, Decision.PROMOTE)
        assert 0 < ab.evidence["alpha"] < 0.05 and "experiment" not in gate.evidence
        assert sum(ab.evidence["users"].values()) == 32 and 0 < ab.evidence["sessions"] <= 96
        assert cycled.judged.tested is not None and cycled.judged.tested.steps == ("canary", "split", "over")
        assert set(gate.evidence["changes"]) == {"seeds", "names", "pairs", "larger", "families"}
        assert Ledger(resources.store).unaccounted() == 0


async def test_who_was_sent_to_a_promoted_version_is_served_by_it_until_the_cycle_ends(
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
        (cycled,) = await turned(resources)
        assert cycled.decision is Decision.PROMOTE, cycled.reason
        (resources.run.directory / "stages" / "cycle-1.json").unlink()
        (again,) = await turned(resources)
    assert (again.decision, again.champion) == (Decision.PROMOTE, 1)
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
    done = {"release": tested} if kept else {}

    async def released(cycle: Cycle, *_: Any) -> results.Tested:
        return tested

    monkeypatch.setattr(Cycle, "_release", released)
    async with scene(tmp_path, lambda version: 0.5) as resources:
        resources.config = replace(resources.config, live=replace(resources.config.live, shadow_requests=0))
        measured = await measure(resources, CHAMPION, held_out(resources.config, resources.run)[:5], passes=1)
        admission = Admission(decision=Decision.ADMIT, reason="", experiment="trial-of-2", alpha=0.02)
        for name, result in {"gate": measured, "admission": admission, **done}.items():
            resources.run.finish(f"cycle-1/{name}", result, 0.0)
        arms = [Arm(name=name, version=n, share=1.0 - n, engines=()) for n, name in enumerate(ARMS)]
        resources.store.set_arms(arms)
        CycleControl(resources.store, "cycle-1").log(CycleAction.STAGE_BEGAN, "release")
        plan = planned(resources.config.live, "trial-of-2", 0.02)
        champion, challenger = (replace(each, experiment="trial-of-2") for each in resources.store.arms())
        widen(resources.store, plan, 0, (champion, challenger))
        say(resources.store, word, "ada", "the customer waits")
        tasks = HeldOutTasks(
            resources, held_out(resources.config, resources.run), Champion(version=0, measured=measured)
        )
        cycle = Cycle(resources, live_traffic(resources), tasks, [])
        judged = await cycle._judge(Champion(version=0, measured=measured), 1)
    assert judged.decision is decided and judged.tested == tested


async def test_a_worse_candidate_meets_nobody_and_the_champion_is_published_again(tmp_path: Path) -> None:
    async with scene(tmp_path, lambda version: 0.0 if version else 0.9) as resources:
        (cycled,) = await turned(resources)
        assert cycled.decision == Decision.ROLL_BACK
        assert cycled.judged is not None and cycled.judged.tested is None
        assert cycled.champion == 2
        (served,) = [arm for arm in resources.store.arms() if arm.share > 0]
        assert (served.name, served.version) == ("champion", 2)
        objects = Subscriber(Objects.open(str(resources.run.objects_path)))
        roots = [objects.manifest(version).state_root for version in (0, 1, 2)]
        assert roots[2] == roots[0] != roots[1]
        assert not resources.store.sessions(arm="challenger")
        champion = Champion(version=CHAMPION, measured=cycled.judged.benched)
        traffic = live_traffic(resources)
        (again,) = await cycles(
            resources, traffic, champion, [], 1
        )  # a finished run's stages are read, not done
        assert again == cycled and len(resources.store.verdicts()) == 1


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
        (cycled,) = await turned(resources)
        assert cycled.judged is not None and cycled.judged.tested is None
        assert (cycled.decision, cycled.champion) == (Decision.HOLD, 2), cycled.reason
        (gate,) = resources.store.verdicts()
        assert gate.evidence["suite"].startswith("own 1, hash ")
        assert (
            "seeds of the suite" in gate.evidence["changes"] and "correct/tampered" in gate.evidence["axes"]
        )
        own = {session.task_id for session in resources.store.sessions(source=Source.BENCH)}
        assert {folder.name for folder in (tmp_path / "own").iterdir() if folder.is_dir()} <= own
        assert Ledger(resources.store).unaccounted() == 0


async def test_a_trial_has_one_level_though_a_kill_came_after_the_gate_s_verdict(tmp_path: Path) -> None:
    async with scene(tmp_path, lambda version: 0.5) as resources:
        resources.config = replace(resources.config, live=replace(resources.config.live, claim="cheaper"))
        measured = await measure(resources, CHAMPION, held_out(resources.config, resources.run)[:5], passes=1)
        tasks = HeldOutTasks(
            resources, held_out(resources.config, resources.run), Champion(version=0, measured=measured)
        )
        cycle = Cycle(resources, live_traffic(resources), tasks, [])
        first, again = [await cycle._admit(CHAMPION, measured, measured) for _ in range(2)]
        assert first == again and len(resources.store.verdicts()) == 1


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
    """Version 1 is worse and rolled back; version 2 is version 0 again; version 3 is better."""
    monkeypatch.delitem(trial.GUARDRAILS, "latency")
    skills = {0: 0.4, 1: 0.0, 2: 0.4, 3: 1.0}
    async with scene(tmp_path, lambda version: skills[version]) as resources:
        first, second = await turned(resources, count=2)
        assert (first.candidate, first.champion) == (1, 2)
        assert first.decision in {Decision.ROLL_BACK, Decision.HOLD, Decision.INCONCLUSIVE}, (
            "by chance not all that it lost is shown"
        )
        assert (second.decision, second.candidate, second.champion) == (Decision.PROMOTE, 3, 3), second.reason
        assert second.lived.sessions == 32 <= second.collected.offered
        (served,) = [arm for arm in resources.store.arms() if arm.share > 0]
        assert (served.name, served.version) == ("champion", 3)
        ledger = Ledger(resources.store)
        assert ledger.unaccounted() == ledger.trained_twice() == ledger.unended() == 0
        parents = {row.version: row.parent for row in resources.store.versions()}
        assert parents == {0: None, 1: 0, 2: 0, 3: 2}


async def test_what_a_demoted_promotion_replaced_is_served_and_learnt_from_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 1 is promoted and demoted; version 2 is version 0 again; version 3 is compared with that."""
    monkeypatch.delitem(trial.GUARDRAILS, "latency")
    skills = {0: 0.5, 1: 1.0, 2: 0.5, 3: 0.0, 4: 0.5}
    async with scene(tmp_path, lambda version: skills[version]) as resources:
        (first,) = await turned(resources)
        assert (first.decision, first.champion, first.put_back) == (Decision.PROMOTE, 1, ()), first.reason
        assert [each.standing for each in promotions(resources.store)] == ["provisional"]
        settle_by_hand(resources.store, 1, Decision.DEMOTE, "ada", "undone after days")
        first, second = await turned(resources, count=2)
        assert second.put_back == (1,) and (second.lived.version, second.candidate) == (2, 3)
        assert not second.decision.promotes and second.champion == 4
        assert first.judged is not None
        before = Champion(version=0, measured=replace(first.judged.benched, engine={"swaps": 7}))
        assert measured_last(before, [first]) == first.judged.benched
        assert measured_last(before, [first, second]) == before.measured
        assert [each.standing for each in promotions(resources.store)] == ["demoted, put back"]
        objects = Subscriber(Objects.open(str(resources.run.objects_path)))
        roots = [objects.manifest(version).state_root for version in range(5)]
        assert roots[0] == roots[2] == roots[4] != roots[1] and Ledger(resources.store).trained_twice() == 0
