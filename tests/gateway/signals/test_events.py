import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.gateway.signals.events import (
    MOST_LINES,
    EventError,
    RefusedLine,
    parse_event,
    parse_lines,
    signals_of,
)
from ostinato.types import ApiKey, Event, SignalKind

NOW = 1_763_650_000.0
ADA = ApiKey(hash="1", user="ada", organisation="acme")
AGREES = ApiKey(hash="1", user="ada", organisation="acme", consent=True)
LINE = {"id": "e1", "name": "edit.revert", "time": 1.5, "session_id": "s1", "turn": 2, "attributes": {"n": 1}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def event(name: str, **attributes: Any) -> Event:
    return Event(
        id="e1", name=name, user="ada", observed_at=1.0, session_id="s1", turn=3, attributes=attributes
    )


def test_a_line_is_the_callers_event() -> None:
    told = parse_event(LINE, ADA)
    assert (told.id, told.name, told.user, told.organisation) == ("e1", "edit.revert", "ada", "acme")
    assert (told.session_id, told.turn, told.observed_at, told.attributes) == ("s1", 2, 1.5, {"n": 1})
    assert parse_event({"id": "e1", "name": "session.start", "time": 0}, ADA).session_id is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": None}, "id must be"),
        ({"id": "a b"}, "id must be"),
        ({"name": "edit.loved"}, "name must be one of client.error, edit.commit"),
        ({"time": None}, "time must be seconds"),
        ({"time": True}, "time must be seconds"),
        ({"time": 1.7e12}, "not milliseconds"),
        ({"time": 4e9}, "not in the future"),
        ({"time": float("nan")}, "time must be seconds"),
        ({"turn": -1}, "turn must be"),
        ({"session_id": 7}, "session_id must be"),
        ({"attributes": []}, "attributes must be an object"),
        ({"user": "bob"}, "unknown field 'user'"),
    ],
)
def test_the_wrong_field_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(EventError, match=message):
        parse_event(LINE | change, ADA)


def test_each_line_is_judged_alone() -> None:
    good = json.dumps(LINE).encode()
    found = list(parse_lines(b"\n".join([good, b"", b"{", b"[1]", b'{"id": NaN}', b'"\\ud800"', good]), ADA))
    wrong = {each.line: each.message for each in found if isinstance(each, RefusedLine)}
    assert [each[0] for each in found if not isinstance(each, RefusedLine)] == [1, 7]
    assert wrong.keys() == {3, 4, 5, 6}
    assert "not JSON" in wrong[5]


def test_a_line_that_is_too_long_is_refused() -> None:
    line = json.dumps(LINE | {"attributes": {"x": "y" * 300_000}}).encode()
    (refused,) = parse_lines(line, ADA)
    assert isinstance(refused, RefusedLine) and "a line may have 262144 bytes" in refused.message


def test_lines_beyond_the_limit_are_one_refusal() -> None:
    good = json.dumps(LINE).encode()
    found = list(parse_lines(b"ab\n" * (MOST_LINES - 1) + good + b"\n" + b"ab\n" * 500_000, ADA))
    assert len(found) == MOST_LINES + 1
    (number, told), last = found[-2:]
    assert (number, told.id) == (MOST_LINES, "e1")
    assert (last.line, last.message) == (
        MOST_LINES + 1,
        f"a request may have {MOST_LINES} lines: send this line and all after it in the next",
    )
    assert isinstance(next(parse_lines(b"\n" * MOST_LINES + good, ADA)), RefusedLine)


def test_text_is_stored_only_with_consent() -> None:
    line = LINE | {"name": "user.prompt", "attributes": {"prompt": "fix it", "prompt_length": 6}}
    assert parse_event(line, ADA).attributes == {"prompt_length": 6}
    assert parse_event(line, AGREES).attributes == {"prompt": "fix it", "prompt_length": 6}


def test_secrets_are_redacted_wherever_they_stand() -> None:
    attributes = {"prompt": "use ghp_" + "a1B2" * 9, "tool": {"password": "t1ger!Horse"}}
    told = parse_event(LINE | {"attributes": attributes}, AGREES)
    assert "a1B2" not in str(told) and "t1ger" not in str(told)


@pytest.mark.parametrize(
    ("told", "meaning"),
    [
        (event("tool.decision", decision="accept", source="user_permanent"), (SignalKind.TOOL_DECISION, 1.0)),
        (event("tool.decision", decision="reject", source="user_reject"), (SignalKind.TOOL_DECISION, 0.0)),
        (event("tool.decision", decision="denied", source="User"), (SignalKind.TOOL_DECISION, 0.0)),
        (event("tool.decision", decision="accept", source="config"), None),
        (event("user.prompt", prompt_length=3), (SignalKind.USER_PROMPT, 1.0)),
        (event("edit.feedback", outcome="accepted"), (SignalKind.EDIT_KEPT, 1.0)),
        (event("edit.feedback", outcome="rejected"), (SignalKind.EDIT_REVERTED, 1.0)),
        (event("edit.feedback", outcome="ignored"), None),
        (event("tool.call", **{"error.type": "invalid_arguments"}), (SignalKind.ERROR, "invalid_arguments")),
        (event("tool.call", success=True), None),
        (event("client.error", error="timeout"), (SignalKind.ERROR, "timeout")),
        (event("session.end", ending="finished"), (SignalKind.ENDING, "finished")),
        (event("session.end", reason="logout"), None),
        (event("edit.survival", survival_rate_no_revert=1.0), None),
        (event("edit.survival", survival_rate_four_gram=0.75), (SignalKind.EDIT_SURVIVAL, 0.75)),
        (event("edit.survival", censored="stashed"), None),
        (event("edit.commit", survival_rate_four_gram=1.0), (SignalKind.EDIT_COMMITTED, 1.0)),
        (event("edit.commit", survival_rate_four_gram=7), None),
        (event("user.cancel"), (SignalKind.CANCELLED, 1.0)),
        (event("tests.run", passed=False), (SignalKind.TESTS_RUN, 0.0)),
        (event("tests.run", passed="yes"), None),
    ],
)
def test_the_signals_of_each_event(told: Event, meaning: tuple[SignalKind, float | str] | None) -> None:
    signals = signals_of(told, NOW)
    assert [(signal.kind, signal.value) for signal in signals] == ([] if meaning is None else [meaning])
    for signal in signals:
        assert (signal.id, signal.session_id, signal.turn) == ("event/e1", "s1", 3)
        assert signals_of(told, NOW) == [signal]


@pytest.mark.parametrize(("rating", "value"), [("negative", 0.0), ("positive", 1.0)])
def test_a_thumb_is_a_signal_of_its_own(rating: str, value: float) -> None:
    """It says that a person was pleased; it does not say that the answer needed no edit."""
    (thumb,) = signals_of(event("user.feedback", rating=rating), NOW)
    assert (thumb.id, thumb.kind, thumb.value) == ("event/e1", SignalKind.RATING, value)


def test_a_signal_knows_when_it_happened_and_when_it_was_heard() -> None:
    told = replace(event("user.prompt"), observed_at=NOW - 60)
    ahead = replace(told, observed_at=NOW + 60)
    for each, when in ((told, NOW - 60), (ahead, NOW)):
        (signal,) = signals_of(each, NOW)
        assert (signal.observed_at, signal.received_at) == (when, NOW)


@pytest.mark.parametrize(
    ("attributes", "edit"),
    [
        ({"edit_id": "e9", "tool_use_id": "t1"}, "e9"),
        ({"tool_use_id": "t1"}, "t1"),
        ({"edit_id": 3}, None),
        ({}, None),
    ],
)
def test_feedback_on_an_edit_names_the_edit(attributes: dict[str, object], edit: str | None) -> None:
    (signal,) = signals_of(event("edit.feedback", outcome="rejected", **attributes), NOW)
    assert signal.edit == edit


@given(
    st.dictionaries(st.sampled_from([*LINE, "x"]), JSON), st.sampled_from(["edit.revert", "tool.decision"])
)
def test_any_object_is_read_or_refused(line: dict[str, Any], name: str) -> None:
    try:
        signals_of(parse_event(line | {"name": name}, AGREES), NOW)
    except EventError as error:
        assert str(error)  # noqa: PT017


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    assert all(isinstance(each, RefusedLine) for each in parse_lines(body, ADA))
