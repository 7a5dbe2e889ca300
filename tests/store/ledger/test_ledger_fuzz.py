"""A few of the schedules of `benchmarks/faults.py`, and proof that they notice defects."""

import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fuzz.ledger import run_schedule
from fuzz.repeat import run_repeat

from ostinato.rollout import sampling
from ostinato.store import Ledger
from ostinato.store.sql import sqlite_file
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
    """Return the counts that must be zero, over all schedules; one that breaks off counts as lost."""
    total = dict.fromkeys(ZERO, 0)
    for seed in seeds:
        try:
            counts = run_schedule(seed, folder)
        except Exception:
            counts = {"lost": 1}
        for name in ZERO:
            total[name] += counts.get(name, 0)
    return total


def test_no_schedule_trains_twice_or_loses_anything(folder: Path) -> None:
    assert wrong(range(1000, 1030), folder) == dict.fromkeys(ZERO, 0)


def do_nothing(*_: object, **__: object) -> int:
    return 0


def by_number(self: Ledger, row: Checkpoint, prompts: Any = (), dropped: Any = ()) -> int:
    """Commit as an old defect did: all that is claimed for this number counts as trained."""
    with self._database.write() as connection:
        claimed = connection.exec_driver_sql(
            "SELECT groups.id FROM groups JOIN prompts USING (prompt) WHERE phase = 'claimed' "
            f"AND target_version = {row.version}"
        )
        batch = tuple(id for (id,) in claimed)
    return COMMIT(self, Checkpoint(**{**{n: getattr(row, n) for n in row.__slots__}, "batch": batch}))


COMMIT = Ledger.commit
NOT_FLUSHED = tuple(each.replace("synchronous=FULL", "synchronous=NORMAL") for each in sqlite_file.PRAGMAS)
MUTATIONS: dict[str, tuple[object, str, object]] = {
    "the ledger is not flushed": (sqlite_file, "PRAGMAS", NOT_FLUSHED),
    "newer signals are not looked for": (Ledger, "_reopen", do_nothing),
    "versions are committed by number": (Ledger, "commit", by_number),
    "a version before the newest is not settled": (Learner, "_settle_earlier", do_nothing),
    "claims are not released": (Ledger, "release", do_nothing),
}
SHOWN_FROM = {"newer signals are not looked for": 20, "a version before the newest is not settled": 760}
"""The seed to begin with for defects that few schedules show, so that the search is short."""


@pytest.mark.deep
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_schedules_notice_each_fixed_defect(
    mutation: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*MUTATIONS[mutation])
    first = SHOWN_FROM.get(mutation, 0)
    tens = (range(start, start + 10) for start in range(first, first + 300, 10))
    assert any(any(wrong(ten, folder).values()) for ten in tens), "none of 300 schedules shows it"


def test_a_synchronous_run_that_dies_ends_in_the_root_of_one_that_does_not(folder: Path) -> None:
    counts = run_repeat(1, folder) + run_repeat(4, folder)
    assert counts["repeats"] == 2 and counts["kills"] > 0 and counts["power_cuts"] > 0
    assert counts["roots_differ"] == 0


@pytest.mark.slow
def test_the_root_notices_a_seed_that_is_not_derived(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "sampling_seed", lambda *_: random.getrandbits(60))
    assert run_repeat(1, folder)["roots_differ"] == 1
