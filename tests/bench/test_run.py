from dataclasses import replace
from pathlib import Path

import pytest
from tests.circle import circle, solves

from ostinato.bench.run import Bench
from ostinato.store import Ledger
from ostinato.tasks.pebble import KINDS, generate, provide
from ostinato.types import Grade, SignalKind, State


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

    async with circle(tmp_path, mind, ["bench"]) as shop:
        bench = Bench(shop.runner(shop.client("bench", "bench")), shop.store, slots=1)
        measured = await bench.measure(7, tasks)
        assert [outcome.solved for outcome in measured.outcomes] == [(right,)] * len(tasks)
        assert [outcome.task for outcome in measured.outcomes] == [task.id for task in tasks]
        assert [outcome.cluster for outcome in measured.outcomes] == [pebble.cluster for pebble in pebbles]
        score = measured.report.scores["seeds"]
        assert (score.solve, score.n) == (float(right), len(tasks))
        assert score.low <= score.solve <= score.high
        assert shop.store.reports(7) == [measured.report]
        assert measured.report.harness == shop.store.sessions()[0].harness != ""
        ledger = Ledger(shop.store)
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

    async with circle(tmp_path, mind, ["bench"]) as shop:
        bench = Bench(shop.runner(shop.client("bench", "bench")), shop.store, slots=1)
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

    async with circle(tmp_path, mind, ["bench"]) as shop:
        bench = Bench(shop.runner(shop.client("bench", "bench")), shop.store, slots=1)
        measured = await bench.measure(7, [forged])
        assert measured.report.rates["forgeable"] == 1.0
        assert measured.report.scores["seeds"].solve == 0.0
        (session,) = shop.store.sessions()
        values = {signal.kind: signal.value for signal in shop.store.signals_of([session.id])[session.id]}
        assert (values[SignalKind.HIDDEN_TESTS], values[SignalKind.GRADE]) == (1.0, Grade.FORGEABLE)
