"""Whatever happens to a chain at once, nobody is served wrong weights and everybody gets to the newest."""

import pytest
from benchmarks.chain_fuzz import run_schedule

from ostinato.sync import Publisher, SyncError
from ostinato.sync.codec.wire import CHECK_BYTES, Reader


@pytest.mark.parametrize("seed", range(40))
def test_a_random_schedule(seed: int) -> None:
    found = run_schedule(seed)
    assert found["schedules"] == 1
    assert not found["digest_mismatches_served"]
    assert not found["acknowledged_lost"]
    assert not found["readers_stuck"]


def test_a_reader_that_checks_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedules can fail: without digests and checksums a damaged bit is served."""
    for module in ("download", "subscriber", "sealed"):
        monkeypatch.setattr(f"ostinato.sync.{module}.expect", lambda *_: None, raising=False)
    monkeypatch.setattr("ostinato.sync.codec.choose.opened", lambda payload: Reader(payload[:-CHECK_BYTES]))
    assert any(_mismatches(seed) for seed in range(40))


def _mismatches(seed: int) -> int:
    """Served in one schedule; 0 if it ended before, in whatever else comes of damage that is let pass."""
    try:
        return run_schedule(seed)["digest_mismatches_served"]
    except Exception:
        return 0


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
