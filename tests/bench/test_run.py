import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.resources import fake_resources, solves

from ostinato.bench.run import RETRIES, Bench, BenchError
from ostinato.harness.episode import Episode, failed
from ostinato.store import Ledger, Store
from ostinato.tasks.pebble import KINDS, generate, provide
from ostinato.types import Grade, Session, SignalKind, Source, State, Task, new_id


@pytest.mark.parametrize("right", [True, False])
async def test_every_kind_is_scored_by_its_hidden_tests(tmp_path: Path, right: bool) -> None:
    pebbles = [generate(kind, "seeds", 1) for kind in KINDS]
    tasks = [provide(pebble, tmp_path / "tasks" / pebble.id) for pebble in pebbles]
    scripts = iter(pebbles)
    minds: dict[str, object] = {}

    def mind(session_id: str, turn: int) -> str:
        if not right:
            return "done"
        if session_id not in minds:
            minds[session_id] = next(scripts)
        return solves(minds[session_id], session_id, turn)  # type: ignore[arg-type]

    async with fake_resources(tmp_path, mind, ["bench"]) as resources:
        bench = Bench(resources.runner(resources.client("bench", "bench")), resources.store, slots=1)
        measured = await bench.measure(7, tasks)
        assert [outcome.solved for outcome in measured.outcomes] == [(right,)] * len(tasks)
        assert [outcome.task for outcome in measured.outcomes] == [task.id for task in tasks]
        assert [outcome.cluster for outcome in measured.outcomes] == [pebble.cluster for pebble in pebbles]
        score = measured.report.scores["seeds"]
        assert (score.solve, score.n) == (float(right), len(tasks))
        assert score.low <= score.solve <= score.high
        assert resources.store.reports(7) == [measured.report]
        assert measured.report.harness == resources.store.sessions()[0].harness != ""
        ledger = Ledger(resources.store)
        assert ledger.unaccounted() == 0
        assert ledger.states()[State.MEASURED] > 0


async def test_all_passes_of_a_task_are_counted_together(tmp_path: Path) -> None:
    pebbles = [generate("fix", split, 1) for split in ("seeds", "names")]
    tasks = [provide(pebble, tmp_path / "tasks" / pebble.id) for pebble in pebbles]
    sessions: list[str] = []

    def mind(session_id: str, turn: int) -> str:
        if session_id not in sessions:
            sessions.append(session_id)
        index = sessions.index(session_id)  # with one slot: pass 1 over both tasks, then pass 2
        return solves(pebbles[index % 2], session_id, turn) if index in {0, 2, 3} else "done"

    async with fake_resources(tmp_path, mind, ["bench"]) as resources:
        bench = Bench(resources.runner(resources.client("bench", "bench")), resources.store, slots=1)
        measured = await bench.measure(7, tasks, passes=2)
        assert [outcome.solved for outcome in measured.outcomes] == [(True, True), (False, True)]
        assert [outcome.split for outcome in measured.outcomes] == ["seeds", "names"]
        scores = measured.report.scores
        assert (scores["seeds"].solve, scores["names"].solve) == (1.0, 0.5)
        assert scores["names"].n == 1  # two passes over one task are one task


async def test_a_forgeable_pass_is_counted_apart(tmp_path: Path) -> None:
    pebble = generate("fix", "seeds", 1)
    task = provide(pebble, tmp_path / "task")
    check = {"command": "echo 1..1; echo ok - all", "report": "tap"}
    forged = replace(task, test_ids=("all",), metadata={**task.metadata, "check": check})

    def mind(session_id: str, turn: int) -> str:
        return "done"

    async with fake_resources(tmp_path, mind, ["bench"]) as resources:
        bench = Bench(resources.runner(resources.client("bench", "bench")), resources.store, slots=1)
        measured = await bench.measure(7, [forged])
        assert measured.report.rates["forgeable"] == 1.0
        assert measured.report.scores["seeds"].solve == 0.0
        (session,) = resources.store.sessions()
        values = {
            signal.kind: signal.value for signal in resources.store.signals_of([session.id])[session.id]
        }
        assert (values[SignalKind.HIDDEN_TESTS], values[SignalKind.GRADE]) == (1.0, Grade.FORGEABLE)


class Runner:
    """A runner of episodes that are not solved, and of some tasks so often void."""

    harness = "h"

    def __init__(self, store: Store, void: Mapping[str, int]) -> None:
        self.store = store
        self.left = Counter(void)

    async def run(self, task: Task, user: object, *, source: Source) -> Episode:
        outcome = failed(new_id(), "the sandbox failed")
        about = Session(
            id=outcome.session_id,
            source=source,
            user="bench",
            arm="bench",
            task_id=task.id,
            harness=self.harness,
            started_at=0.0,
        )
        self.store.record((), (), [about])
        await asyncio.sleep(0)
        void = "the sandbox failed" if self.left[task.id] > 0 else None
        self.left[task.id] -= 1
        return Episode(
            task=task,
            session_id=outcome.session_id,
            outcome=outcome,
            changed=False,
            solved=False,
            tampered=False,
            void=void,
        )


async def test_a_task_that_stays_void_is_left_out_with_all_its_passes_and_named(tmp_path: Path) -> None:
    tasks = [task_of(n, tmp_path) for n in range(20)]
    store = Store.open(tmp_path / "store.db")
    runner = Runner(store, {"t3": 1, "t7": 1 + RETRIES})
    bench = Bench(runner, store, slots=1)  # type: ignore[arg-type]
    measured = await bench.measure(7, tasks, passes=2)
    assert [outcome.task for outcome in measured.outcomes] == [t.id for t in tasks if t.id != "t7"]
    assert {len(outcome.solved) for outcome in measured.outcomes} == {2}
    assert (measured.void, measured.left_out) == (2 + RETRIES, ("t7",))
    assert measured.report.scores["seeds"].n == 19
    runner.left.update({"t0": 100, "t1": 100})
    with pytest.raises(BenchError, match=r"2 tasks stayed void .* at most 1 may .* t1: the sandbox failed"):
        await bench.measure(7, tasks)
    assert runner.left["t19"] == -2, "nothing is run once the benchmark is given up"


def task_of(number: int, directory: Path) -> Task:
    return Task(
        id=f"t{number}", kind="fix", split="seeds", key=f"k{number}", instruction="do", directory=directory,
        test_ids=(),
    )  # fmt: skip
