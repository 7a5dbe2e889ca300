import pytest

from ostinato.types import PartState, RewardPart


@pytest.mark.parametrize("state", PartState)
def test_only_a_part_whose_fact_can_still_arrive_is_censored(state: PartState) -> None:
    assert RewardPart(name="outcome", value=0.0, state=state).censored is (state is PartState.CENSORED)
