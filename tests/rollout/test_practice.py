"""Practice with a real gateway, store, sandbox and verifier; only the model is a script."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.circle import circle, solves
from tests.store.builders import version

from ostinato.harness.agent import HarnessConfig
from ostinato.harness.episode import CardUser, EpisodeRunner
from ostinato.loop.run import START
from ostinato.loop.stages.prepare import load_wire
from ostinato.loop.workshop import Workshop
from ostinato.rewards.practice.definition import PRACTICE, PracticeReward
from ostinato.rollout.practice import Practice, PracticeConfig
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.base import Capabilities, Exam, Isolation, Sandbox, SandboxError, Snapshot, Spec
from ostinato.sandbox.exam.verifier import Verification, Verifier
from ostinato.store import Ledger
from ostinato.tasks.pebble import generate, problem, provide
from ostinato.tasks.teaching.habits import call
from ostinato.types import Source, State, Task

CONFIG = PracticeConfig(group_size=4, groups_at_once=1, ready_ahead=2)


def scoring(shop: Workshop) -> PracticeReward:
    return PracticeReward(PRACTICE, load_wire(shop.run.checkpoint(START))[1])


async def test_a_group_is_scored_against_its_mean_and_offered_whole(tmp_path: Path) -> None:
    pebble = generate("fix", "train", 3)
    order: dict[str, int] = {}

    def mind(session_id: str, turn: int) -> str:
        place = order.setdefault(session_id, len(order))
        return solves(pebble, session_id, turn) if place % 2 else "done"

    async with circle(tmp_path, mind, ["practice"]) as shop:
        runner = shop.runner(shop.client("practice", "practice"))
        practice = Practice(runner, shop.store, scoring(shop), tmp_path / "tasks", CONFIG)
        await practice.run(iter([problem(pebble)]), lambda: practice.progress.groups > 0)
        ledger = Ledger(shop.store)
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

    async with circle(tmp_path, mind, ["practice"]) as shop:
        runner = shop.runner(shop.client("practice", "practice"))
        config = replace(CONFIG, group_size=2, branches=2, branch_after=1)
        practice = Practice(runner, shop.store, scoring(shop), tmp_path / "tasks", config)
        await practice.run(iter([problem(pebble)]), lambda: practice.progress.groups > 0)
        ledger = Ledger(shop.store)
        (group,) = ledger.claim(1, 9, -1)
        assert len(group.rewards) == 2 and practice.progress.sessions == 3
        assert practice.progress.solved == 1
        advantages = {order[sample.session_id]: sample.advantage for sample in group.samples}
        totals = {place: shop.store.rewards(id)[-1].total for id, place in order.items() if place != 1}
        assert sorted(group.rewards) == pytest.approx(sorted([totals[0], (totals[2] + totals[3]) / 2]))
        assert [advantages[3], -advantages[2]] == pytest.approx([(totals[3] - totals[2]) / 2] * 2)
        assert advantages[1] == pytest.approx(-advantages[0])
        assert advantages[1] == pytest.approx(abs(group.rewards[0] - group.rewards[1]))
        for sample in group.samples:
            turns = shop.store.turns(sample.session_id)
            assert sum(sample.mask) == sum(len(turn.completion.ids) for turn in turns)
            assert len(turns) == (2 if order[sample.session_id] == 3 else 1), "the shared turn is the trunk's"
        ledger.commit(version(1, group.id))
        assert ledger.unaccounted() == 0


async def test_what_was_done_before_the_fork_is_paid_by_every_branch(tmp_path: Path) -> None:
    """A broken call and its effort lie in the trunk, whose branches would else be free of them."""
    pebble = generate("fix", "train", 3)

    def mind(session_id: str, turn: int) -> str:
        return "<tool_call>\n{" if turn == 0 else "done"

    async with circle(tmp_path, mind, ["practice"]) as shop:
        runner = shop.runner(shop.client("practice", "practice"))
        config = replace(CONFIG, group_size=2, branches=2, branch_after=1)
        practice = Practice(runner, shop.store, scoring(shop), tmp_path / "tasks", config)
        await practice.run(iter([problem(pebble)]), lambda: practice.progress.groups > 0)
        (group,) = Ledger(shop.store).claim(1, 9, -1)
        leaves = {sample.session_id for sample in group.samples if shop.store.rewards(sample.session_id)}
        assert len(leaves) == 4
        for id in leaves:
            parts = {part.name: part for part in shop.store.rewards(id)[-1].parts}
            assert parts["broken"].value == -0.5 and parts["broken"].evidence != ()
            assert parts["effort"].value < scoring(shop).score(id, shop.store.turns(id), ()).total


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
    async with circle(tmp_path, partial(solves, pebble), ["practice"]) as shop:
        backend = ProcessBackend()
        verifier = OnceVoid(backend)
        runner = EpisodeRunner(shop.client("practice", "practice"), backend, verifier, HarnessConfig())
        task = provide(pebble, tmp_path / "task")
        episode = await runner.run(task, CardUser(task), source=Source.PRACTICE)
    assert (episode.solved, episode.void, verifier.asked) == (True, None, 2)


async def test_a_prompt_that_was_sampled_is_not_sampled_again(tmp_path: Path) -> None:
    pebble, other = generate("fix", "train", 3), generate("fix", "train", 4)
    async with circle(tmp_path, lambda session_id, turn: "done", ["practice"]) as shop:
        Ledger(shop.store).reserve(pebble.key)
        runner = shop.runner(shop.client("practice", "practice"))
        practice = Practice(runner, shop.store, scoring(shop), tmp_path / "tasks", CONFIG)
        await practice.run(iter([problem(pebble), problem(other)]), lambda: practice.progress.groups > 0)
        (group,) = Ledger(shop.store).claim(1, 9, -1)
        assert group.prompt == other.key


async def test_broken_calls_are_counted_as_negatives(tmp_path: Path) -> None:
    pebble = generate("fix", "train", 5)

    def mind(session_id: str, turn: int) -> str:
        return "<tool_call>\n{" if int(session_id, 16) % 2 else "done"

    async with circle(tmp_path, mind, ["practice"]) as shop:
        runner = shop.runner(shop.client("practice", "practice"))
        config = PracticeConfig(group_size=8, groups_at_once=1, ready_ahead=2)
        practice = Practice(runner, shop.store, scoring(shop), tmp_path / "tasks", config)
        await practice.run(iter([problem(pebble)]), lambda: practice.progress.groups > 0)
        (group,) = Ledger(shop.store).claim(1, 9, -1)
        assert len(group.rewards) == 8
        for sample, reward in zip(group.samples, group.rewards, strict=True):
            broken = int(sample.session_id, 16) % 2
            assert (reward <= -0.5) == bool(broken)


class FailingBackend:
    """A backend whose cannot create a sandbox."""

    name, capabilities = "failing", Capabilities(isolation=Isolation.PROCESS)

    async def create(self, spec: Spec) -> Sandbox:
        raise SandboxError("no more namespaces")

    async def restore(self, snapshot: Snapshot, spec: Spec) -> Sandbox:
        raise SandboxError("no more namespaces")

    async def remove(self, snapshot: Snapshot) -> None: ...

    async def examine(self, exam: Exam) -> list[dict[str, str]]:
        raise SandboxError("no more namespaces")

    async def aclose(self) -> None: ...


async def test_an_infrastructure_failure_is_void_and_never_a_reward(tmp_path: Path) -> None:
    pebble = generate("fix", "train", 6)
    async with circle(tmp_path, lambda session_id, turn: "done", ["practice"]) as shop:
        backend, client = FailingBackend(), shop.client("practice", "practice")
        runner = EpisodeRunner(client, backend, Verifier(backend), HarnessConfig())
        practice = Practice(runner, shop.store, scoring(shop), tmp_path / "tasks", CONFIG)
        await practice.run(iter([problem(pebble)]), lambda: practice.progress.groups > 0)
        assert practice.progress.void == CONFIG.group_size
        assert Ledger(shop.store).ready(-1) == Ledger(shop.store).unended() == 0
        assert not Ledger(shop.store).reserve(pebble.key)
