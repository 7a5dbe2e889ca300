"""Simulated developers act on what they can see: whatever the hidden tests would say changes nothing."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.circle import circle, solves

from ostinato.rollout.live import Traffic, Visit
from ostinato.tasks.developers import population
from ostinato.tasks.pebble import Pebble, generate, provide
from ostinato.types import SignalKind, Source, Task, new_id

WRONG = "import nothing_of_that_name\n\n\ndef test_alpha():\n    assert False\n"
KINDS = ("fix", "ambiguous", "question", "impossible")


def spoilt(task: Task) -> Task:
    """The same task with hidden tests that say the opposite."""
    (task.directory / "tests" / "test_hidden.py").write_text(WRONG)
    (task.directory / "tests" / "test.sh").write_text("exit 1\n")
    return replace(task, test_ids=("test_hidden.py::test_alpha",))


async def visits(directory: Path, *, right: bool, flipped: bool) -> tuple[list[Visit], Sequence[set[str]]]:
    """A developer at one task of each kind; with hidden tests that say the opposite when `flipped`."""
    pebbles: list[Pebble] = [generate(kind, "train", 3) for kind in KINDS]
    at: dict[str, Pebble] = {}

    def mind(session_id: str, turn: int) -> str:
        return solves(at[session_id], session_id, turn) if right else "done"

    async with circle(directory, mind, ["champion"]) as shop:
        traffic = Traffic(shop.runner(shop.client("simulator")), shop.store, directory / "tasks")
        person = replace(population(1, 1)[0], rng=Random(4))
        (seat,) = shop.seats([person])
        found = []
        for pebble in pebbles:
            task = provide(pebble, directory / "tasks" / pebble.id)
            id = new_id()
            at[id] = pebble
            found.append(await traffic.visit(seat, spoilt(task) if flipped else task, id))
        signals = shop.store.signals_of([visit.session_id for visit in found])
        assert all(shop.store.sessions(source=Source.LIVE, ended=True))
        return found, [{signal.kind for signal in signals.get(v.session_id, [])} for v in found]


@pytest.mark.parametrize("right", [True, False])
async def test_the_hidden_verdict_changes_nothing_of_what_a_developer_does(
    tmp_path: Path, right: bool
) -> None:
    honest, told = await visits(tmp_path / "honest", right=right, flipped=False)
    flipped, told_flipped = await visits(tmp_path / "flipped", right=right, flipped=True)
    assert [visit.reactions for visit in honest] == [visit.reactions for visit in flipped]
    assert told == told_flipped
    assert all(visit.reactions and visit.void is None for visit in honest)
    assert not {SignalKind.HIDDEN_TESTS, SignalKind.TAMPERED} & set().union(*told)
    kept = [visit.pleased for visit in honest]
    assert sum(kept) >= 3 if right else not any(kept)  # what they see does change it
