"""Every noun survives JSON, and a field that is wrong, unknown or missing is named by its path."""

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.builders import COMPLETIONS, FINITE, INTS, SAMPLES, SAMPLINGS, TEXT

from ostinato import types
from ostinato.types import (
    Arm,
    Checkpoint,
    Completion,
    FinishReason,
    GenerateRequest,
    Group,
    Reward,
    Routes,
    Sample,
    Sampling,
    Signal,
    Structure,
    StructureKind,
    from_json,
    to_json,
)

NOUNS = [noun for name in types.__all__ if is_dataclass(noun := getattr(types, name))]
JSON = st.recursive(
    st.none() | st.booleans() | INTS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
CHECKED: dict[Any, st.SearchStrategy[Any]] = {
    Arm: st.builds(Arm, name=TEXT, version=INTS, share=FINITE, engines=st.just(("http://a", "http://b"))),
    Checkpoint: st.builds(Checkpoint, kind=st.just("delta"), created_at=FINITE),
    Completion: COMPLETIONS,
    Group: st.builds(
        Group, id=TEXT, prompt=TEXT, samples=st.lists(SAMPLES, max_size=2).map(tuple), rewards=st.just((0.5,))
    ),
    Routes: st.builds(Routes, data=st.binary(min_size=4, max_size=4), width=st.just(2)),
    Sample: SAMPLES,
    Sampling: SAMPLINGS,
    Structure: st.builds(Structure, kind=st.just(StructureKind.GRAMMAR), text=TEXT.filter(bool)),
}
"""Instances of the nouns whose fields must agree with one another."""
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: INTS,
    float: FINITE,
    str: TEXT,
    Any: JSON,
    Path: TEXT.map(Path),
}
REQUEST = GenerateRequest(request_id="r", session_id="s", prompt_ids=(1,), stop_ids=(2,), max_tokens=8)
COMPLETION = Completion(
    ids=(1,), logprobs=(-0.5,), versions=(3,), finish=FinishReason.STOP, routes=b"\x00\xff"
)


def values_of(hint: Any, name: str = "") -> st.SearchStrategy[Any]:
    """Return the values that a field of this annotation may have."""
    origin, parts = get_origin(hint), get_args(hint)
    if name == "max_tokens":
        return st.integers(1, 2**31)
    if hint in PLAIN:
        return PLAIN[hint]
    if origin in {tuple, frozenset}:
        return st.lists(values_of(parts[0]), max_size=3).map(origin)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(TEXT, values_of(parts[1]), max_size=3)
    if parts:
        return st.one_of(*map(values_of, parts))
    return instances_of(hint) if is_dataclass(hint) else st.from_type(hint)


def instances_of(noun: Any) -> st.SearchStrategy[Any]:
    if noun in CHECKED:
        return CHECKED[noun]
    hints = get_type_hints(noun)
    return st.builds(noun, **{name: values_of(hints[name], name) for name in hints})


@pytest.mark.parametrize("noun", NOUNS)
@settings(max_examples=25)
@given(data=st.data())
def test_every_noun_comes_back(noun: type, data: st.DataObject) -> None:
    made = data.draw(instances_of(noun))
    assert from_json(noun, json.loads(json.dumps(to_json(made)))) == made


def test_defaults_may_be_left_out() -> None:
    short = to_json(REQUEST)
    del short["sampling"]
    assert from_json(GenerateRequest, short) == REQUEST


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("request_id", 3, "expected text, got 3"),
        ("session_id", None, "expected text, got None"),
        ("prompt_ids", "12", "expected a list, got '12'"),
        ("prompt_ids", [1, 2.0], "expected a whole number, got 2.0"),
        ("prompt_ids", [True], "expected a whole number, got True"),
        ("prompt_ids", [2**31], "expected 32-bit numbers, got 2147483648"),
        ("max_tokens", 0, "expected at least 1, got 0"),
        ("sampling", {"temperature": -1}, "temperature is a number of at least 0, got -1"),
        ("sampling", {"temperature": float("nan")}, "temperature is a number of at least 0, got nan"),
        ("sampling", {"seed": 1.5}, "seed: expected a whole number, got 1.5"),
        ("sampling", {"top_a": 0.5}, "top_a: unknown, a Sampling has no such field"),
        ("sampling", 7, "expected a JSON object of a Sampling, got 7"),
        ("stream", True, "unknown, a GenerateRequest has no such field"),
    ],
)
def test_a_bad_field_of_a_request_is_named(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: ") as refused:
        from_json(GenerateRequest, {**to_json(REQUEST), field: value})
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("ids", [None], "expected a whole number, got None"),
        ("logprobs", ["x"], "expected a number, got 'x'"),
        ("versions", 7, "expected a list, got 7"),
        ("finish", "boredom", "expected one of stop, length, stop_sequence, got 'boredom'"),
        ("routes", "%", "not base64"),
        ("routes", 7, "expected text, got 7"),
    ],
)
def test_a_bad_field_of_a_completion_is_named(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: ") as refused:
        from_json(Completion, {**to_json(COMPLETION), field: value})
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("noun", "data", "message"),
    [
        (Reward, {"session_id": "s", "definition": "d"}, "^parts: missing"),
        (Reward, {"session_id": "s", "definition": "d", "parts": [{}]}, "^parts: name: missing"),
        (Signal, {"kind": "comment", "value": [], "observed_at": 1, "session_id": "s"}, "^value: "),
        (Signal, [], "a JSON object of a Signal"),
        (types.Report, {"version": 1, "scores": []}, "^scores: expected an object"),
        (types.Abilities, {"token_ids": 1}, "^token_ids: expected true or false"),
    ],
)
def test_what_is_no_such_noun_is_refused(noun: type, data: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_json(noun, data)


def test_columns_must_agree() -> None:
    with pytest.raises(ValueError, match="2 logprobs"):
        from_json(Completion, {**to_json(COMPLETION), "logprobs": [0.0, 0.0]})
