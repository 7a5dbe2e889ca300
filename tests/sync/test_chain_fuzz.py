"""Whatever happens to a chain at once, nobody is served wrong weights and everybody gets to the newest."""

import pytest
from benchmarks.chain_fuzz import run_schedule

from ostinato.sync import Publisher, SyncError


@pytest.mark.parametrize("seed", range(40))
def test_a_random_schedule(seed: int) -> None:
    found = run_schedule(seed)
    assert found["schedules"] == 1
    assert not found["digest_mismatches_served"]
    assert not found["acknowledged_lost"]
    assert not found["readers_stuck"]


def test_a_publisher_that_believes_the_store_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conflict taken for success: two trainers think that they published the same version."""
    monkeypatch.setattr(Publisher, "_settle", lambda _, ours, *__: ours)
    assert any(_goes_wrong(seed) for seed in range(40))


def _goes_wrong(seed: int) -> bool:
    try:
        found = run_schedule(seed)
    except (AssertionError, SyncError):
        return True
    return bool(found["acknowledged_lost"] or found["readers_stuck"])
