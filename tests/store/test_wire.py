"""Requests and completions survive JSON, and an invalid field is named."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.builders import COMPLETIONS, INTS, SAMPLINGS, TEXT

from ostinato.store.wire import (
    abilities_from_json,
    abilities_to_json,
    completion_from_json,
    completion_to_json,
    request_from_json,
    request_to_json,
)
from ostinato.types import Abilities, Completion, FinishReason, GenerateRequest, Sampling

REQUESTS = st.builds(
    GenerateRequest,
    request_id=TEXT,
    session_id=TEXT,
    prompt_ids=st.lists(INTS, max_size=8).map(tuple),
    stop_ids=st.lists(INTS, max_size=3).map(tuple),
    max_tokens=st.integers(1, 2**31),
    sampling=SAMPLINGS,
)
REQUEST = GenerateRequest(request_id="r", session_id="s", prompt_ids=(1,), stop_ids=(2,), max_tokens=8)
COMPLETION = Completion(
    ids=(1,), logprobs=(-0.5,), versions=(3,), finish=FinishReason.STOP, routes=b"\x00\xff"
)


@given(REQUESTS)
def test_requests_come_back(request: GenerateRequest) -> None:
    assert request_from_json(json.dumps(request_to_json(request))) == request


@given(COMPLETIONS)
def test_completions_come_back(completion: Completion) -> None:
    assert completion_from_json(json.loads(json.dumps(completion_to_json(completion)))) == completion


def test_defaults_may_be_left_out() -> None:
    short = request_to_json(REQUEST)
    del short["sampling"]
    assert request_from_json(short) == REQUEST
    assert request_from_json(short | {"sampling": {"seed": 3}}) == replace(REQUEST, sampling=Sampling(seed=3))


@given(
    st.builds(
        Abilities,
        model=TEXT,
        tokenizer=TEXT,
        context=st.integers(0, 2**40),
        structures=st.frozensets(TEXT),
        sampling=st.frozensets(TEXT),
    )
)
def test_abilities_come_back(abilities: Abilities) -> None:
    assert abilities_from_json(json.dumps(abilities_to_json(abilities))) == abilities


def test_an_engine_that_does_not_say_what_it_can_do_is_refused() -> None:
    with pytest.raises(ValueError, match="sampling: missing"):
        abilities_from_json({"version": 3})


def test_unknown_fields_are_left_alone() -> None:
    assert request_from_json({**request_to_json(REQUEST), "stream": True}) == REQUEST


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("request_id", 3, "expected text, got 3"),
        ("session_id", None, "expected text, got None"),
        ("prompt_ids", "12", "expected a list, got '12'"),
        ("prompt_ids", [1, 2.0], "expected a whole number, got 2.0"),
        ("prompt_ids", [True], "expected a whole number, got True"),
        ("prompt_ids", [2**31], "expected 32-bit numbers, got 2147483648"),
        ("stop_ids", {}, "expected a list"),
        ("max_tokens", 0, "expected at least 1, got 0"),
        ("max_tokens", "8", "expected a whole number, got '8'"),
        ("sampling", {"temperature": -1}, "temperature is a number of at least 0, got -1"),
        ("sampling", {"temperature": float("nan")}, "temperature is a number of at least 0, got nan"),
        ("sampling", {"seed": 1.5}, "seed: expected a whole number, got 1.5"),
        ("sampling", {"top_a": 0.5}, "unknown settings top_a"),
        ("sampling", 7, "expected an object, got 7"),
    ],
)
def test_a_bad_field_of_a_request_is_named(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: ") as refused:
        request_from_json({**request_to_json(REQUEST), field: value})
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("ids", [None], "expected a whole number, got None"),
        ("logprobs", ["x"], "expected a number, got 'x'"),
        ("versions", 7, "expected a list, got 7"),
        ("finish", "boredom", "'boredom' is not a valid FinishReason"),
        ("routes", "%", "not base64"),
        ("routes", 7, "expected text, got 7"),
    ],
)
def test_a_bad_field_of_a_completion_is_named(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: ") as refused:
        completion_from_json({**completion_to_json(COMPLETION), field: value})
    assert message in str(refused.value)


@pytest.mark.parametrize("field", ["request_id", "session_id", "prompt_ids", "stop_ids", "max_tokens"])
def test_a_missing_field_is_named(field: str) -> None:
    data = request_to_json(REQUEST)
    del data[field]
    with pytest.raises(ValueError, match=f"^{field}: missing"):
        request_from_json(data)


@pytest.mark.parametrize("data", ["[1]", "3", "{", b"\xff"])
def test_json_that_is_no_object_is_refused(data: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON object|unexpected end|not valid UTF-8"):
        completion_from_json(data)


def test_columns_must_agree() -> None:
    with pytest.raises(ValueError, match="2 logprobs"):
        completion_from_json({**completion_to_json(COMPLETION), "logprobs": [0.0, 0.0]})
