"""The fuzz of `benchmarks/ledger_fuzz.py` on a few schedules, and proof that it sees what it looks for."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.ledger_fuzz import run_schedule

from ostinato.store import Ledger, database
from ostinato.train.learner import Learner
from ostinato.types import Checkpoint

ZERO = ("trained_twice", "lost", "unended", "stale")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def wrong(seeds: range, folder: Path) -> dict[str, int]:
    """The counts of all schedules that must be zero; a schedule that breaks off counts as lost."""
    found = dict.fromkeys(ZERO, 0)
    for seed in seeds:
        try:
            counts = run_schedule(seed, folder)
        except Exception:
            counts = {"lost": 1}
        for name in ZERO:
            found[name] += counts.get(name, 0)
    return found


def test_no_schedule_trains_twice_or_loses_anything(folder: Path) -> None:
    assert wrong(range(1000, 1030), folder) == dict.fromkeys(ZERO, 0)


def not_at_all(*_: object, **__: object) -> int:
    return 0


def by_number(self: Ledger, row: Checkpoint, prompts: Any = ()) -> int:
    """As it was: whatever was claimed for this number is trained, whatever the weights are."""
    with self._database.write() as connection:
        claimed = connection.exec_driver_sql(
            "SELECT groups.id FROM groups JOIN prompts USING (prompt) WHERE phase = 'claimed' "
            f"AND target_version = {row.version}"
        )
        batch = tuple(id for (id,) in claimed)
    return COMMIT(self, Checkpoint(**{**{n: getattr(row, n) for n in row.__slots__}, "batch": batch}))


COMMIT = Ledger.commit
NOT_FLUSHED = tuple(each.replace("synchronous=FULL", "synchronous=NORMAL") for each in database.PRAGMAS)
MUTATIONS: dict[str, tuple[object, str, object]] = {
    "the ledger is not flushed": (database, "PRAGMAS", NOT_FLUSHED),
    "newer signals are not looked for": (Ledger, "_reopen", not_at_all),
    "versions are committed by number": (Ledger, "commit", by_number),
    "a version before the newest is not settled": (Learner, "_settle_earlier", not_at_all),
    "claims are not released": (Ledger, "release", not_at_all),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_fuzz_sees_each_defect_that_was_mended(
    mutation: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*MUTATIONS[mutation])
    tens = (range(start, start + 10) for start in range(0, 300, 10))
    assert any(any(wrong(ten, folder).values()) for ten in tens), "not one of 300 schedules shows it"
