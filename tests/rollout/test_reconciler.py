"""The reconciler: with a real gateway, sandbox and verifier and a script for a model; and killed at many
points, with sessions that follow from their seeds."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fuzz.practice import SOLVED, NumberRunner, defects
from fuzz.practice import problem as fuzz_problem
from sqlalchemy import func, select
from tests.resources import fake_resources, solves
from tests.store.builders import version

from ostinato.harness.agent import HarnessConfig
from ostinato.harness.episode import CardUser, Episode, EpisodeRunner, Sampled
from ostinato.loop.resources import RunResources
from ostinato.loop.run import START
from ostinato.loop.stages.prepare import load_wire
from ostinato.rewards.practice.definition import PRACTICE, PracticeReward
from ostinato.rollout.config import SYNCHRONOUS, PracticeConfig
from ostinato.rollout.reconciler import Reconciler, Training
from ostinato.rollout.sampling import SlotWork
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.base import Capabilities, Exam, Isolation, Sandbox, SandboxError, Spec
from ostinato.sandbox.exam.verifier import Verification, Verifier
from ostinato.store import Ledger, Phase, Store
from ostinato.store.ledger.slot_rows import INTERRUPTED, SlotState
from ostinato.store.ledger.slots import Slots
from ostinato.store.purge import purge
from ostinato.store.sql import schema
from ostinato.tasks.pebble import generate, problem, provide
from ostinato.tasks.teaching.habits import call
from ostinato.types import Source, State, Task, TurnKind

CONFIG = PracticeConfig(group_size=4, groups_at_once=1, ready_ahead=2)


def scoring(resources: RunResources) -> PracticeReward:
    return PracticeReward(PRACTICE, load_wire(resources.run.checkpoint(START))[1])


def reconciler(
    runner: EpisodeRunner, resources: RunResources, directory: Path, config: PracticeConfig = CONFIG
) -> Reconciler:
    training = Training(batch=1, staleness=4, until=9)
    return Reconciler(
        SlotWork(runner, config), resources.store, scoring(resources), directory / "tasks", training, seed=1
    )


async def test_a_group_is_scored_against_its_mean_and_offered_whole(tmp_path: Path) -> None:
    pebble = generate("fix", "train", 3)
    order: dict[str, int] = {}

    def mind(session_id: str, turn: int) -> str:
        place = order.setdefault(session_id, len(order))
        return solves(pebble, session_id, turn) if place % 2 else "done"

    async with fake_resources(tmp_path, mind, ["practice"]) as resources:
        runner = resources.runner(resources.client("practice", "practice"))
        practice = reconciler(runner, resources, tmp_path)
        await practice.run(iter([problem(pebble)]), lambda: practice.progress.groups > 0)
        ledger = Ledger(resources.store)
        (group,) = ledger.claim(1, 9, -1)
        assert group.prompt == pebble.key
        assert len(group.rewards) == 4
        assert abs(sum(sample.advantage for sample in group.samples)) < 1e-9
        solved = {s.session_id for s in group.samples if order[s.session_id] % 2}
        for sample, reward in zip(group.samples, group.rewards, strict=True):
            assert (reward > 0.5) == (sample.session_id in solved)
            assert sum(sample.mask) > 0
        ledger.commit(version(1, group.id))
        assert ledger.unaccounted() == 0
        assert ledger.states()[State.TRAINED] > 0


async def test_branches_are_compared_with_their_own_and_trunks_with_each_other(tmp_path: Path) -> None:
    """The first trunk ends at once; of the two branches of the other the second solves the task."""
    pebble = generate("fix", "train", 3)
    order: dict[str, int] = {}

    def mind(session_id: str, turn: int) -> str:
        place = order.setdefault(session_id, len(order))
        if turn == 0:
            return call("bash", command="echo begun > begun.txt") if place else "done"
        return solves(pebble, session_id, turn - 1) if place == 3 else "done"

    async with fake_resources(tmp_path, mind, ["practice"]) as resources:
        runner = resources.runner(resources.client("practice", "practice"))
        config = replace(CONFIG, group_size=2, branches=2, branch_after=1)
        practice = reconciler(runner, resources, tmp_path, config)
        await practice.run(iter([problem(pebble)]), lambda: practice.progress.groups > 0)
        ledger = Ledger(resources.store)
        (group,) = ledger.claim(1, 9, -1)
        assert len(group.rewards) == 2 and practice.progress.recent == [1 / 3]
        assert practice.progress.solved == 1
        advantages = {order[sample.session_id]: sample.advantage for sample in group.samples}
        totals = {place: resources.store.rewards(id)[-1].total for id, place in order.items() if place != 1}
        assert sorted(group.rewards) == pytest.approx(sorted([totals[0], (totals[2] + totals[3]) / 2]))
        assert [advantages[3], -advantages[2]] == pytest.approx([(totals[3] - totals[2]) / 2] * 2)
        assert advantages[1] == pytest.approx(-advantages[0])
        assert advantages[1] == pytest.approx(abs(group.rewards[0] - group.rewards[1]))
        for sample in group.samples:
            turns = resources.store.turns(sample.session_id)
            assert sum(sample.mask) == sum(len(turn.completion.ids) for turn in turns)
            assert len(turns) == (2 if order[sample.session_id] == 3 else 1), "the shared turn is the trunk's"
        ledger.commit(version(1, group.id))
        assert ledger.unaccounted() == 0


async def test_branches_without_a_turn_leave_the_session_that_they_began_from(tmp_path: Path) -> None:
    """The conversation is full where it is forked, so that the gateway never hears of the branches."""
    pebble = generate("fix", "train", 3)
    order: dict[str, int] = {}

    def mind(session_id: str, turn: int) -> str:
        place = order.setdefault(session_id, len(order))
        return call("bash", command="echo begun > begun.txt") if place else solves(pebble, session_id, turn)

    async with fake_resources(tmp_path, mind, ["practice"]) as resources:
        backend, client = ProcessBackend(), resources.client("practice", "practice")
        runner = EpisodeRunner(client, backend, Verifier(backend), HarnessConfig(max_context=1))
        config = replace(CONFIG, group_size=2, branches=2, branch_after=1)
        practice = reconciler(runner, resources, tmp_path, config)
        await practice.run(iter([problem(pebble)]), lambda: practice.progress.groups > 0)
        ledger = Ledger(resources.store)
        (group,) = ledger.claim(1, 9, -1)
        assert {sample.session_id for sample in group.samples} == set(order) and len(order) == 2
        assert practice.progress.solved == 1, "what the branch found in its sandbox is judged"
        ledger.commit(version(1, group.id))
        assert ledger.unaccounted() == 0


async def test_what_was_done_before_the_fork_is_paid_by_every_branch(tmp_path: Path) -> None:
    """A broken call and its effort lie in the trunk, whose branches would else be free of them."""
    pebble = generate("fix", "train", 3)

    def mind(session_id: str, turn: int) -> str:
        return "<tool_call>\n{" if turn == 0 else "done"

    async with fake_resources(tmp_path, mind, ["practice"]) as resources:
        runner = resources.runner(resources.client("practice", "practice"))
        config = replace(CONFIG, group_size=2, branches=2, branch_after=1)
        practice = reconciler(runner, resources, tmp_path, config)
        await practice.run(iter([problem(pebble)]), lambda: practice.progress.groups > 0)
        (group,) = Ledger(resources.store).claim(1, 9, -1)
        leaves = {sample.session_id for sample in group.samples if resources.store.rewards(sample.session_id)}
        assert len(leaves) == 4
        for id in leaves:
            parts = {part.name: part for part in resources.store.rewards(id)[-1].parts}
            assert parts["broken"].value == -0.5 and parts["broken"].evidence != ()
            assert parts["effort"].value < scoring(resources).score(id, resources.store.turns(id), ()).total


@pytest.mark.parametrize("trained", [True, False])
async def test_all_segments_of_a_chain_have_the_advantage_of_its_outcome(
    tmp_path: Path, trained: bool
) -> None:
    """The final reward counts for every token of the chain, its summary among them unless it is masked."""
    pebble = generate("fix", "train", 3)
    (change,) = pebble.changes
    edit = call("edit", path=change.path, old_string=change.old, new_string=change.new)
    wins, asked = set[str](), Counter[str]()

    def mind(session_id: str, turn: int) -> str:
        if session_id not in asked and len(asked) % 2:
            wins.add(session_id)
        asked[session_id] += 1
        script = [call("read", path=change.path), "Summary: one line is off", edit, "Summary: done", "done"]
        text = script[asked[session_id] - 1]
        return "ok" if text == edit and session_id not in wins else text

    async with fake_resources(tmp_path, mind, ["practice"]) as resources:
        backend = ProcessBackend()
        harness = HarnessConfig(profile="compact", summarize_after=1)
        runner = EpisodeRunner(resources.client("practice", "practice"), backend, Verifier(backend), harness)
        config = replace(CONFIG, group_size=2, train_summaries=trained)
        practice = reconciler(runner, resources, tmp_path, config)
        await practice.run(iter([problem(pebble)]), lambda: practice.progress.groups > 0)
        (group,) = Ledger(resources.store).claim(1, 9, -1)
        for session in resources.store.sessions():
            turns = resources.store.turns(session.id)
            won = session.id in wins
            assert [turn.segment for turn in turns] == ([0, 0, 1, 1, 2] if won else [0, 0, 1])
            assert [turn.kind for turn in turns].count(TurnKind.SUMMARY) == 1 + won
            rows = [sample for sample in group.samples if sample.session_id == session.id]
            (advantage,) = {row.advantage for row in rows}
            assert len(rows) == 2 + won and (advantage > 0) == won
            learnt = [turn for turn in turns if trained or turn.kind is not TurnKind.SUMMARY]
            assert sum(sum(row.mask) for row in rows) == sum(len(turn.completion.ids) for turn in learnt)


class OnceVoid(Verifier):
    """A verifier whose first examination fails by a fault of ours."""

    asked = 0

    async def verify(self, task: Task, changes: Mapping[str, bytes | None]) -> Verification:
        self.asked += 1
        if self.asked == 1:
            return Verification(passed=False, outcomes={}, void="the machine went away")
        return await super().verify(task, changes)


async def test_what_a_session_left_is_verified_though_a_verifier_failed(tmp_path: Path) -> None:
    pebble = generate("fix", "train", 3)
    async with fake_resources(tmp_path, partial(solves, pebble), ["practice"]) as resources:
        backend = ProcessBackend()
        verifier = OnceVoid(backend)
        runner = EpisodeRunner(resources.client("practice", "practice"), backend, verifier, HarnessConfig())
        task = provide(pebble, tmp_path / "task")
        episode = await runner.run(task, CardUser(task), source=Source.PRACTICE)
    assert (episode.solved, episode.void, verifier.asked) == (True, None, 2)


async def test_a_prompt_that_was_sampled_is_not_sampled_again(tmp_path: Path) -> None:
    pebble, other = generate("fix", "train", 3), generate("fix", "train", 4)
    async with fake_resources(tmp_path, lambda session_id, turn: "done", ["practice"]) as resources:
        Ledger(resources.store).reserve(pebble.key)
        runner = resources.runner(resources.client("practice", "practice"))
        practice = reconciler(runner, resources, tmp_path)
        await practice.run(iter([problem(pebble), problem(other)]), lambda: practice.progress.groups > 0)
        (group,) = Ledger(resources.store).claim(1, 9, -1)
        assert group.prompt == other.key


async def test_broken_calls_are_counted_as_negatives(tmp_path: Path) -> None:
    pebble = generate("fix", "train", 5)

    def mind(session_id: str, turn: int) -> str:
        return "<tool_call>\n{" if int(session_id, 16) % 2 else "done"

    async with fake_resources(tmp_path, mind, ["practice"]) as resources:
        runner = resources.runner(resources.client("practice", "practice"))
        config = PracticeConfig(group_size=8, groups_at_once=1, ready_ahead=2)
        practice = reconciler(runner, resources, tmp_path, config)
        await practice.run(iter([problem(pebble)]), lambda: practice.progress.groups > 0)
        (group,) = Ledger(resources.store).claim(1, 9, -1)
        assert len(group.rewards) == 8
        for sample, reward in zip(group.samples, group.rewards, strict=True):
            broken = int(sample.session_id, 16) % 2
            assert (reward <= -0.5) == bool(broken)


class FailingBackend:
    """A backend whose cannot create a sandbox."""

    name, capabilities = "failing", Capabilities(isolation=Isolation.PROCESS)

    async def create(self, spec: Spec) -> Sandbox:
        raise SandboxError("no more namespaces")

    async def examine(self, exam: Exam) -> list[dict[str, str]]:
        raise SandboxError("no more namespaces")

    async def aclose(self) -> None: ...


async def test_an_infrastructure_failure_is_void_and_never_a_reward(tmp_path: Path) -> None:
    pebble = generate("fix", "train", 6)
    async with fake_resources(tmp_path, lambda session_id, turn: "done", ["practice"]) as resources:
        backend, client = FailingBackend(), resources.client("practice", "practice")
        runner = EpisodeRunner(client, backend, Verifier(backend), HarnessConfig())
        practice = reconciler(runner, resources, tmp_path)
        await practice.run(
            iter([problem(pebble)]), lambda: Slots(resources.store).phases()[Phase.DROPPED] > 0
        )
        entered = Slots(resources.store).entered()
        assert entered[SlotState.RUNNING] == 2 * CONFIG.group_size, "each was tried again once"
        assert entered[SlotState.DROPPED] == CONFIG.group_size
        (reason,) = Slots(resources.store).reasons()
        assert reason == "the sandbox failed: no more namespaces"
        assert Ledger(resources.store).ready(-1) == Ledger(resources.store).unended() == 0
        assert not Ledger(resources.store).reserve(pebble.key)


def numbers(
    store: Store,
    folder: Path,
    runner: NumberRunner | None = None,
    config: PracticeConfig = CONFIG,
    **training: int,
) -> Reconciler:
    """A reconciler whose sessions follow from their seeds."""
    plan = Training(**{"batch": 1, "staleness": 4, "until": 9, **training})
    runner = runner or NumberRunner(store, version=lambda: 0)

    async def newest() -> int:
        return Slots(store).newest_version()

    return Reconciler(SlotWork(runner, config), store, SOLVED, folder, plan, seed=7, served=newest)


class Killed(BaseException):
    """The end of the process."""


class Dying(NumberRunner):
    """A runner that dies in its n-th session or verification."""

    def __init__(self, store: Store, *, sessions: int = 99, verifications: int = 99) -> None:
        super().__init__(store, version=lambda: 0)
        self._sessions, self._verifications = sessions, verifications

    async def grow(self, *about: Any, **named: Any) -> Sampled:
        self._sessions -= 1
        if self._sessions < 0:
            raise Killed
        return await super().grow(*about, **named)

    async def verify(self, *about: Any) -> Episode:
        self._verifications -= 1
        if self._verifications < 0:
            raise Killed
        return await super().verify(*about)


async def killed(one: Reconciler) -> None:
    with pytest.raises(Killed):
        await one.run(map(fuzz_problem, count()), lambda: False)


async def finished(one: Reconciler, store: Store, groups: int) -> None:
    await one.run(map(fuzz_problem, count()), lambda: Slots(store).phases()[Phase.OFFERED] >= groups)


@pytest.mark.parametrize("death", [{"sessions": 2}, {"verifications": 2}, {"sessions": 0}])
async def test_a_half_done_group_is_finished_after_a_kill_and_not_thrown_away(
    death: dict[str, int], store: Store, tmp_path: Path
) -> None:
    await killed(numbers(store, tmp_path, Dying(store, **death)))
    left = Slots(store).open()
    assert next(iter(left)) == "p0"
    done = {s.session_id for s in left["p0"] if s.state in {SlotState.FINISHED, SlotState.SCORED}}
    await finished(numbers(store, tmp_path), store, 1)
    ledger = Ledger(store)
    (group,) = ledger.claim(1, 1, -1)
    assert group.prompt == "p0" and len(group.rewards) == 4
    assert done <= {sample.session_id for sample in group.samples}, "what had ended stays"
    assert set(Slots(store).reasons()) <= {INTERRUPTED}
    assert not any(defects(store).values())
    ledger.commit(version(1, group.id))
    ledger.close_out()
    assert ledger.unaccounted() == ledger.unended() == 0


async def test_a_session_that_had_ended_is_verified_from_what_was_kept(store: Store, tmp_path: Path) -> None:
    await killed(numbers(store, tmp_path, Dying(store, verifications=0)))
    before = Slots(store).entered()
    assert before[SlotState.FINISHED] > 0 and before[SlotState.SCORED] == 0
    sampled = len(store.sessions())
    await finished(numbers(store, tmp_path, Dying(store, sessions=4 - before[SlotState.FINISHED])), store, 1)
    assert len(store.sessions()) >= sampled and Slots(store).entered()[SlotState.SCORED] >= 4


async def test_a_void_session_is_tried_once_more_and_then_leaves_its_group(
    store: Store, tmp_path: Path
) -> None:
    config = replace(CONFIG, group_size=6)
    await finished(
        numbers(store, tmp_path, NumberRunner(store, version=lambda: 0, failing=0.35), config), store, 2
    )
    Ledger(store).close_out()
    entered = Slots(store).entered()
    tried = entered[SlotState.PLANNED] - 6 * len(Slots(store).planned())
    assert tried > 0 and entered[SlotState.DROPPED] > 0
    with store.database.read() as connection:
        most = connection.scalar(select(func.max(schema.slots.c.attempt)))
    assert most == 1 and Ledger(store).unaccounted() == 0


async def test_a_session_that_is_purged_leaves_its_open_group(store: Store, tmp_path: Path) -> None:
    """Its verdict is known here already, and the others compare themselves without it."""
    gone: list[str] = []

    def purged_once() -> None:
        slots = [slot for each in Slots(store).open().values() for slot in each]
        scored = [slot.session_id for slot in slots if slot.state is SlotState.SCORED]
        if scored and len(scored) < len(slots) and not gone:
            gone.append(scored[0])
            purge(store, by="admin", session=scored[0])

    async def wait(chance: Random) -> None:
        for _ in range(chance.randrange(40)):
            await asyncio.sleep(0)

    runner = NumberRunner(store, version=lambda: 0, point=purged_once, wait=wait)
    one = numbers(store, tmp_path, runner)
    await one.run(map(fuzz_problem, range(5)), lambda: one.progress.groups > 0)
    group = next(each for each in Ledger(store).claim(1, 9, -1))
    assert gone and all(gone[0] not in tree for tree in group.trees) and store.rewards(gone[0]) == []
    assert len(group.rewards) == len(group.trees) == CONFIG.group_size - 1


async def test_a_task_that_is_in_the_sources_no_more_drops_its_prompt(store: Store, tmp_path: Path) -> None:
    await killed(numbers(store, tmp_path, Dying(store, sessions=1)))
    other = map(fuzz_problem, range(5, 40))
    one = numbers(store, tmp_path)
    await one.run(other, lambda: Slots(store).phases()[Phase.OFFERED] >= 1)
    assert Slots(store).reasons()["its task is in the sources no more"] == 4
    ledger = Ledger(store)
    (group,) = ledger.claim(1, 1, -1)
    assert group.prompt == "p5"
    ledger.commit(version(1, group.id))
    ledger.close_out()
    assert ledger.unaccounted() == ledger.unended() == 0


async def test_the_same_seed_samples_the_same_groups_in_the_same_order(tmp_path: Path) -> None:
    """In a synchronous run, whatever was cut off in between."""
    config = replace(CONFIG, mode=SYNCHRONOUS, groups_at_once=3)
    groups = []
    for name, deaths in (("whole", 0), ("killed", 3)):
        store = Store.open(tmp_path / f"{name}.db")
        for death in range(deaths):
            await killed(numbers(store, tmp_path, Dying(store, sessions=2 + death), config, batch=3))
        await finished(numbers(store, tmp_path, None, config, batch=3), store, 3)
        groups.append(Ledger(store).claim(1, 9, -1))
        store.close()
    first, second = groups
    assert [group.prompt for group in first] == ["p0", "p1", "p2"]
    assert [(g.id, g.rewards, [s.ids for s in g.samples]) for g in first] == [
        (g.id, g.rewards, [s.ids for s in g.samples]) for g in second
    ]


async def test_a_synchronous_run_waits_for_the_engine(store: Store, tmp_path: Path) -> None:
    asked: list[int] = []

    async def behind() -> int | None:
        asked.append(1)
        return None if len(asked) < 3 else Slots(store).newest_version()

    one = numbers(store, tmp_path, None, replace(CONFIG, mode=SYNCHRONOUS))
    one._served = behind
    await finished(one, store, 1)
    assert len(asked) == 3


def test_bounds_that_would_deadlock_are_refused_at_the_start(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="groups is 3, practice"):
        numbers(store, tmp_path, batch=3)
    with pytest.raises(ValueError, match="which version the engine serves"):
        Reconciler(
            SlotWork(NumberRunner(store, version=lambda: 0), replace(CONFIG, mode=SYNCHRONOUS)),
            store,
            SOLVED,
            tmp_path,
            Training(batch=1, staleness=0, until=1),
            seed=1,
        )
