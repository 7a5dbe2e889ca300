"""Simulated developers act on what they can see: whatever the hidden tests would say changes nothing."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.resources import fake_resources, solves

from ostinato.demo.developers import Office, Visit, seats
from ostinato.tasks.developers import population
from ostinato.tasks.pebble import Pebble, generate, provide
from ostinato.types import SignalKind, Task, new_id

WRONG = "import nothing_of_that_name\n\n\ndef test_alpha():\n    assert False\n"
KINDS = ("fix", "ambiguous", "question", "impossible")


def spoilt(task: Task) -> Task:
    """The same task with hidden tests that say the opposite."""
    (task.directory / "tests" / "test_hidden.py").write_text(WRONG)
    (task.directory / "tests" / "test.sh").write_text("exit 1\n")
    return replace(task, test_ids=("test_hidden.py::test_alpha",))


Seen = list[tuple[Visit, set[str]]]


@pytest.mark.parametrize("right", [True, False])
async def test_the_hidden_verdict_changes_nothing_of_what_a_developer_does(
    tmp_path: Path, right: bool
) -> None:
    """The same person at one task of each kind; the second time the hidden tests say the opposite."""
    at: dict[str, Pebble] = {}

    def mind(session_id: str, turn: int) -> str:
        return solves(at[session_id], session_id, turn) if right else "done"

    async with fake_resources(tmp_path, mind, ["champion"]) as resources:
        office = Office(resources.runner(resources.client("simulator")), resources.store, tmp_path / "live")

        async def visits(directory: Path, change: Callable[[Task], Task]) -> Seen:
            (seat,) = seats(resources, [replace(population(1, 1)[0], rng=Random(4))])
            found = []
            for pebble in (generate(kind, "train", 3) for kind in KINDS):
                at[id := new_id()] = pebble
                task = change(provide(pebble, directory / pebble.id))
                visit = await office.visit(seat, task, id)
                found.append(
                    (visit, {signal.kind for signal in resources.store.signals_of([id]).get(id, [])})
                )
            return found

        honest = await visits(tmp_path / "honest", lambda task: task)
        flipped = await visits(tmp_path / "flipped", spoilt)
    assert [(v.reactions, told) for v, told in honest] == [(v.reactions, told) for v, told in flipped]
    assert all(visit.reactions and visit.void is None for visit, _ in honest)
    assert not {SignalKind.HIDDEN_TESTS, SignalKind.TAMPERED} & set().union(*(told for _, told in honest))
    kept = [visit.pleased for visit, _ in honest]
    assert sum(kept) >= 3 if right else not any(kept)  # what they see does change it
