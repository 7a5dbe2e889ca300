from pathlib import Path

import pytest
from tests.circle import circle, solves

from ostinato.bench.run import Bench
from ostinato.store import Ledger
from ostinato.tasks.pebble import KINDS, generate, provide
from ostinato.types import State


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
        assert measured.solved == (right,) * len(tasks)
        score = measured.report.scores["seeds"]
        assert (score.solve, score.n) == (float(right), len(tasks))
        assert score.low <= score.solve <= score.high
        assert shop.store.reports(7) == [measured.report]
        assert measured.report.harness == shop.store.sessions()[0].harness != ""
        ledger = Ledger(shop.store)
        assert ledger.unaccounted() == 0
        assert ledger.states()[State.MEASURED] > 0
