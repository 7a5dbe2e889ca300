import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.types import IdError, call_id, completed, turn_of_call


@given(st.integers(0, 10**9 - 1), st.integers(0, 10**9 - 1))
def test_the_id_of_a_call_names_its_turn(turn: int, index: int) -> None:
    assert turn_of_call(call_id(turn, index)) == turn


@given(st.text())
def test_foreign_ids_name_no_turn(text: str) -> None:
    assert turn_of_call("toolu_" + text) is None


@given(st.sets(st.text("ab", max_size=7)), st.text("ab", max_size=7))
def test_an_id_is_completed_where_it_is_the_only_one(known: set[str], text: str) -> None:
    begun = {id for id in known if id.startswith(text)}
    if text in known or (len(begun) == 1 and len(text) >= 4):
        assert completed(text, known, noun="session", where="x.db") == (
            text if text in known else begun.pop()
        )
        return
    with pytest.raises(IdError) as refused:
        completed(text, known, noun="session", where="x.db")
    assert text in str(refused.value)
    assert len(text) < 4 or all(id in str(refused.value) for id in sorted(begun)[:5])
