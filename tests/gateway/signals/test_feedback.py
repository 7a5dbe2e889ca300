import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.gateway.errors import ApiError
from ostinato.gateway.signals.feedback import parse_feedback
from ostinato.types import Signal, SignalKind

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


def signal(body: dict[str, object]) -> Signal:
    return parse_feedback(body).signal


def test_both_dialects_say_the_same() -> None:
    ours = signal({"session_id": "s1", "kind": "edit_kept", "value": True, "turn": 2, "id": "f1"})
    theirs = signal({"episode_id": "s1", "metric_name": "edit_kept", "value": 1, "id": "f1"})
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
        ({"session_id": "s1", "kind": "liked", "value": 1}, "kind: expected one of ending, hidden_tests, "),
        ({"session_id": "s1", "kind": ["ending"], "value": 1}, "kind: expected one of"),
        ({"kind": "edit_kept", "value": 1}, "session_id: missing"),
        ({"session_id": "s1", "kind": "edit_kept", "value": "yes"}, "must be a number"),
        ({"session_id": "s1", "kind": "edit_kept", "value": float("inf")}, "must be a number"),
        ({"session_id": "s1", "kind": "edit_kept", "value": 10**400}, "value: "),
        ({"session_id": "s1", "kind": "comment", "value": 1}, "must be text"),
        ({"session_id": "s1", "kind": "ending", "value": "over"}, "must be one of finished, turn_limit"),
        ({"session_id": "s1", "kind": "edit_kept", "value": 1, "turn": -1}, "turn must be"),
        ({"session_id": "s1", "kind": "edit_kept", "value": 1, "tag": {}}, "unknown field 'tag'"),
        ({"session_id": "s1", "kind": "edit_kept", "value": 1, "tags": {"a": 1}}, "tags must be texts"),
        ({"session_id": "s1", "kind": "edit_kept", "value": 1, "dryrun": "yes"}, "dryrun must be true"),
        ({"inference_id": "s1", "metric_name": "edit_kept", "value": 1}, "inference_id must be the id"),
        (
            {"inference_id": "s1/0", "episode_id": "s1", "metric_name": "edit_kept", "value": 1},
            "either inference_id or episode_id",
        ),
    ],
)
def test_the_wrong_field_is_named(body: object, message: str) -> None:
    with pytest.raises(ApiError, match=message) as caught:
        parse_feedback(body)
    assert caught.value.status == 422


KEPT = {"session_id": "s1", "kind": "edit_kept", "value": True}


def test_the_times_of_the_fact_and_of_its_receipt_are_both_stored() -> None:
    before = time.time()
    told = signal(KEPT | {"observed_at": before - 3_600, "edit": "e1"})
    assert told.observed_at == before - 3_600 and told.edit == "e1"
    assert told.received_at is not None and before <= told.received_at <= time.time()


@pytest.mark.parametrize(
    "more", [{}, {"observed_at": None}, {"observed_at": time.time() + 3_600}], ids=["none", "null", "ahead"]
)
def test_without_a_time_or_with_a_clock_ahead_it_happened_now(more: dict[str, float | None]) -> None:
    told = signal(KEPT | more)
    assert told.observed_at == told.received_at


@pytest.mark.parametrize(
    ("when", "message"),
    [
        (time.time() + 100_000, "lies in the future"),
        (time.time() * 1000, "lies in the future"),
        (3_600.0, "before the year 2000"),
        (float("nan"), "seconds since the epoch"),
        (True, "observed_at: expected a number"),
        ("2026-11-22", "observed_at: expected a number"),
    ],
    ids=["future", "milliseconds", "past", "nan", "flag", "text"],
)
def test_a_time_that_cannot_be_is_refused(when: object, message: str) -> None:
    with pytest.raises(ApiError, match=message) as caught:
        parse_feedback(KEPT | {"observed_at": when})
    assert caught.value.status == 422


@pytest.mark.parametrize("name", ["s-1/3", "chatcmpl-s-1/3", "chatcmpl-s-1-3", "msg_s-1-3", "resp_s-1-3"])
def test_an_answers_id_names_its_turn(name: str) -> None:
    told = signal({"inference_id": name, "metric_name": "edit_kept", "value": True})
    assert (told.session_id, told.turn) == ("s-1", 3)


def test_a_demonstration_may_be_content_blocks() -> None:
    blocks = [{"type": "text", "text": "x = 1"}]
    told = signal({"inference_id": "s1/0", "metric_name": "demonstration", "value": blocks})
    assert told.value == '[{"type": "text", "text": "x = 1"}]'


def test_secrets_do_not_come_through() -> None:
    body = {"episode_id": "s1", "metric_name": "comment", "tags": {"note": "api_key=q8Zt3LmX90pWv2RbAA77"}}
    told = parse_feedback(body | {"value": "it printed ghp_" + "a1B2" * 9})
    assert told.signal.value == "it printed [redacted github_token]"
    assert "q8Zt" not in told.tags["note"]


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "session_id",
                "inference_id",
                "kind",
                "value",
                "turn",
                "observed_at",
                "edit",
                "id",
                "tags",
                "dryrun",
            ]
        ),
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
