"""A release is rows that nobody changes; the last one says where it is, and one that ended it stays the last.

Covers store/sql/arms.py: arms and row are written together or not at all.
"""

from collections.abc import Sequence

import pytest

from ostinato.store import Store
from ostinato.store.releases import Release, ReleaseStage, enter, last_release, releases
from ostinato.types import Arm


def entered(store: Store, stage: ReleaseStage, step: int, share: float) -> Release:
    arms = [Arm(name="champion", version=1, share=1 - share, engines=())]
    return enter(store, "e", stage, step=step, share=share, arms=lambda _: arms, detail=stage.value)


def test_the_last_row_says_where_a_release_is(store: Store) -> None:
    assert last_release(store, "e") is None
    entered(store, ReleaseStage.CANARY, 0, 0.1)
    split = entered(store, ReleaseStage.SPLIT, 1, 0.5)
    assert last_release(store, "e") == split and last_release(store, "another") is None
    assert [row.share for row in releases(store, "e")] == [0.1, 0.5]


def test_a_step_that_goes_on_after_a_kill_keeps_its_moment_and_sets_the_arms_again(store: Store) -> None:
    first = entered(store, ReleaseStage.CANARY, 0, 0.1)
    store.set_arms([])
    assert entered(store, ReleaseStage.CANARY, 0, 0.1) == first == last_release(store, "e")
    assert [arm.share for arm in store.arms()] == [0.9] and len(releases(store, "e")) == 1


def test_nothing_follows_the_end(store: Store) -> None:
    entered(store, ReleaseStage.CANARY, 0, 0.1)
    over = entered(store, ReleaseStage.OVER, 0, 0.0)
    for stage in (ReleaseStage.SPLIT, ReleaseStage.OVER):
        assert entered(store, stage, 1, 0.5) == over
    assert [arm.share for arm in store.arms()] == [1.0]


def test_arms_that_cannot_be_made_leave_no_row(store: Store) -> None:
    def wrong(present: Sequence[Arm]) -> Sequence[Arm]:
        raise ValueError("no such arms")

    with pytest.raises(ValueError, match="no such arms"):
        enter(store, "e", ReleaseStage.CANARY, step=0, share=0.1, arms=wrong)
    assert last_release(store, "e") is None and store.arms_revision() == 0
