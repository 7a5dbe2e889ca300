"""Random faults on a chain of weights: no reader gets wrong weights, and every reader reaches the newest.

Covers sync/errors.py.
"""

import pytest
from fuzz.weights_chain import run_schedule

from ostinato.sync import Publisher, SyncError
from ostinato.sync.codec.payload import CHECK_BYTES, PayloadReader


@pytest.mark.parametrize("seed", range(40))
def test_a_random_schedule_serves_only_right_weights(seed: int) -> None:
    counts = run_schedule(seed)
    assert counts["schedules"] == 1
    assert not counts["digest_mismatches_served"]
    assert not counts["acknowledged_lost"]
    assert not counts["readers_stuck"]


def test_the_schedules_notice_a_reader_that_checks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged bit is served when digests and checksums are switched off."""
    for module in ("reader.download", "reader.subscriber", "chain.sealed"):
        monkeypatch.setattr(f"ostinato.sync.{module}.expect", lambda *_: None, raising=False)
    monkeypatch.setattr(
        "ostinato.sync.codec.choose.opened", lambda payload: PayloadReader(payload[:-CHECK_BYTES])
    )
    assert any(_mismatches(seed) for seed in range(40))


def _mismatches(seed: int) -> int:
    """Return the mismatches of one schedule; 0 if it ended earlier by another effect of the damage."""
    try:
        return run_schedule(seed)["digest_mismatches_served"]
    except Exception:
        return 0


def test_the_schedules_notice_a_publisher_that_takes_a_conflict_for_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two trainers then believe that they published the same version."""
    monkeypatch.setattr(Publisher, "_settle", lambda _, ours, *__: ours)
    assert any(_goes_wrong(seed) for seed in range(40))


def _goes_wrong(seed: int) -> bool:
    try:
        counts = run_schedule(seed)
    except (AssertionError, SyncError):
        return True
    return bool(counts["acknowledged_lost"] or counts["readers_stuck"])
