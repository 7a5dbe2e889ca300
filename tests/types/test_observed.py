import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.types import PartState, RewardPart, call_id, turn_of_call


@pytest.mark.parametrize("state", PartState)
def test_only_a_part_that_is_waited_for_is_censored(state: PartState) -> None:
    assert RewardPart(name="outcome", value=0.0, state=state).censored is (state is PartState.CENSORED)


@given(st.integers(0, 10**9 - 1), st.integers(0, 10**9 - 1))
def test_the_id_of_a_call_names_its_turn(turn: int, index: int) -> None:
    assert turn_of_call(call_id(turn, index)) == turn


@given(st.text())
def test_the_ids_of_others_name_no_turn(text: str) -> None:
    assert turn_of_call("toolu_" + text) is None
