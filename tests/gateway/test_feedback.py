import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.gateway.errors import ApiError
from ostinato.gateway.feedback import parse_feedback
from ostinato.types import SignalKind

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


def test_both_dialects_say_the_same() -> None:
    ours = parse_feedback({"session_id": "s1", "kind": "edit_kept", "value": True, "turn": 2, "id": "f1"})
    theirs = parse_feedback({"episode_id": "s1", "metric_name": "edit_kept", "value": 1, "id": "f1"})
    assert (ours.session_id, ours.kind, ours.value, ours.turn, ours.id) == (
        "s1",
        SignalKind.EDIT_KEPT,
        1.0,
        2,
        "f1",
    )
    assert (theirs.session_id, theirs.kind, theirs.value) == ("s1", SignalKind.EDIT_KEPT, 1.0)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "must be a JSON object"),
        ({"session_id": "s1", "kind": "liked", "value": 1}, "kind must be one of ending, hidden_tests, "),
        ({"session_id": "s1", "kind": ["ending"], "value": 1}, "kind must be one of"),
        ({"kind": "edit_kept", "value": 1}, "session_id must be"),
        ({"session_id": "s1", "kind": "edit_kept", "value": "yes"}, "must be a number"),
        ({"session_id": "s1", "kind": "edit_kept", "value": float("inf")}, "must be a number"),
        ({"session_id": "s1", "kind": "edit_kept", "value": 10**400}, "must be a number"),
        ({"session_id": "s1", "kind": "comment", "value": 1}, "must be text"),
        ({"session_id": "s1", "kind": "ending", "value": "over"}, "must be one of finished, turn_limit"),
        ({"session_id": "s1", "kind": "edit_kept", "value": 1, "turn": -1}, "turn must be"),
        ({"session_id": "s1", "kind": "edit_kept", "value": 1, "tags": {}}, "unknown field 'tags'"),
    ],
)
def test_what_is_wrong_is_named(body: object, message: str) -> None:
    with pytest.raises(ApiError, match=message) as caught:
        parse_feedback(body)
    assert caught.value.status == 422


@given(
    st.dictionaries(
        st.sampled_from(["session_id", "kind", "value", "turn", "id"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text()
        | st.sampled_from(list(SignalKind)),
    )
)
def test_any_object_is_read_or_refused(body: dict[str, object]) -> None:
    try:
        parse_feedback(body)
    except ApiError as error:
        assert error.status == 422  # noqa: PT017
