"""The correction: who waits is drawn by the id alone, and the mean over the draw is the mature reward."""

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


@pytest.mark.parametrize("share", [0.1, 0.25, 1.0])
@pytest.mark.parametrize(("early", "late"), [(1.0, 1.0), (1.0, -0.5), (-0.7, 0.4)])
def test_the_mean_over_the_draw_is_the_mature_reward(share: float, early: float, late: float) -> None:
    one = Correction(share=share)
    assert share * one.worth(early, late) + (1 - share) * one.worth(early, None) == pytest.approx(late)
