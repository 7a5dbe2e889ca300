"""The correction: its mean is that of the mature reward whatever is expected, and nothing else is trained."""

import numpy as np
import pytest

from ostinato.rewards.definition import DefinitionError
from ostinato.rewards.live.correction import Correction


def test_the_draw_is_of_the_stated_share_and_depends_on_the_id_alone() -> None:
    ids = [f"s{number}" for number in range(20_000)]
    waiting = [id_ for id_ in ids if Correction(share=0.2).waits(id_)]
    assert 0.19 < len(waiting) / len(ids) < 0.21
    assert set(waiting) <= {id_ for id_ in ids if Correction(share=0.5).waits(id_)}
    assert not any(Correction().waits(id_) for id_ in ids) and all(map(Correction(share=1.0).waits, ids))
    with pytest.raises(DefinitionError, match=r"late\.share is 2"):
        Correction(share=2.0)


def test_without_mature_sessions_the_early_reward_is_all_there_is() -> None:
    assert Correction(share=0.2).worths([1.0, -0.5], [None, None]) == [1.0, -0.5]
    assert Correction(share=0.2).worths([], []) == []


def test_nothing_that_came_late_changes_nothing() -> None:
    """The early reward is then the mature one, of every session."""
    early = [1.0, -0.5, 0.3, 1.0]
    assert Correction(share=0.5).worths(early, [1.0, None, 0.3, None]) == pytest.approx(early)


def test_the_mean_is_that_of_the_mature_reward() -> None:
    """Two kinds of sessions that look alike early: half of one kind are undone late."""
    rng, share, found = np.random.default_rng(3), 0.25, []
    for _ in range(1_500):
        kind, seen = rng.random(60) < 0.5, rng.random(60) < 0.7
        early = np.where(seen, 1.0, -0.5)
        late = early - 1.5 * (kind & seen & (rng.random(60) < 0.5))
        waits = rng.random(60) < share
        told = [value if wait else None for value, wait in zip(late.tolist(), waits, strict=True)]
        worth = np.array(Correction(share=share).worths(early.tolist(), told))
        found.append(worth[~kind].mean() - worth[kind].mean())
    error = np.std(found) / len(found) ** 0.5
    assert np.mean(found) == pytest.approx(0.7 * 0.5 * 1.5, abs=3 * error) and error < 0.03
