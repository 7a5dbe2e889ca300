from hypothesis import given
from hypothesis import strategies as st

from ostinato.types import call_id, turn_of_call


@given(st.integers(0, 10**9 - 1), st.integers(0, 10**9 - 1))
def test_the_id_of_a_call_names_its_turn(turn: int, index: int) -> None:
    assert turn_of_call(call_id(turn, index)) == turn


@given(st.text())
def test_foreign_ids_name_no_turn(text: str) -> None:
    assert turn_of_call("toolu_" + text) is None
