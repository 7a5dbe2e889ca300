"""What clients write into a history about calls is read as the call that it was, or refused by its name."""

import json

import pytest

from ostinato.gateway.dialects.chat import parse_chat
from ostinato.gateway.dialects.messages import parse_messages
from ostinato.gateway.dialects.request import ChatRequest
from ostinato.gateway.dialects.responses import parse_responses
from ostinato.gateway.errors import ApiError
from ostinato.gateway.tokens.reply_parser import canonical_form

HI = {"role": "user", "content": "hi"}


def in_chat(arguments: object) -> ChatRequest:
    call = {"id": "c1", "type": "function", "function": {"name": "t", "arguments": arguments}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    return parse_chat({"model": "ostinato", "messages": [HI, said]})


def in_responses(arguments: object) -> ChatRequest:
    call = {"type": "function_call", "call_id": "c1", "name": "t", "arguments": arguments}
    return parse_responses({"model": "ostinato", "input": [HI, call]})


@pytest.mark.parametrize("parse", [in_chat, in_responses])
@pytest.mark.parametrize("arguments", ["", " \n", "null", None])
def test_no_arguments_are_an_empty_object(parse, arguments: object) -> None:
    (call,) = parse(arguments).messages[-1]["tool_calls"]
    assert call["function"]["arguments"] == "{}"


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a": ',
        "{} {}",
        "[]",
        "1",
        '"a"',
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": "\\ud800"}',
        "[" * 9000,
        {"a": 1},
    ],
)
@pytest.mark.parametrize(
    ("parse", "field"),
    [(in_chat, "messages[1].tool_calls[0].function.arguments"), (in_responses, "input[1].arguments")],
)
def test_what_is_no_object_is_refused_by_the_field_s_name(parse, field: str, arguments: object) -> None:
    with pytest.raises(ApiError) as refused:
        parse(arguments)
    assert refused.value.status == 400 and refused.value.param == field


@pytest.mark.parametrize(
    ("sampled", "returned"),
    [
        ('{"x": 30.0}', '{"x":30}'),
        ('{"x": 1e3}', '{"x":1000}'),
        ('{"x": -0.0}', '{"x":0}'),
        ('{"x": 9007199254740993}', '{"x":9007199254740992}'),
        ('{"x": 12345678901234567890}', '{"x":12345678901234567000}'),
        ('{"x": [{"y": 0.1}]}', '{"x":[{"y":0.10000000000000002}]}'),
        ('{"b": "é", "a": "<"}', '{"a": "\\u003c", "b": "\\u00e9"}'),
        ('{"x": 1, "y": null}', '{"x":1}'),
        ('{"x": {"y": 1}}', '{"x":{"y":1,"z":null}}'),
    ],
)
def test_a_call_is_the_same_however_a_client_writes_it(sampled: str, returned: str) -> None:
    one, other = (in_chat(text).messages[-1] for text in (sampled, returned))
    assert canonical_form(one) == canonical_form(other)


@pytest.mark.parametrize(
    "pair",
    [
        ('{"x": 1}', '{"x": true}'),
        ('{"x": [null]}', '{"x": []}'),
        ('{"x": 9007199254740991}', '{"x": 9007199254740990}'),
    ],
)
def test_other_calls_stay_others(pair: tuple[str, str]) -> None:
    one, other = (canonical_form(in_chat(text).messages[-1]) for text in pair)
    assert one != other


def test_an_error_is_read_as_one() -> None:
    def results(**marks: bool) -> str:
        result = {"type": "tool_result", "tool_use_id": "t1", "content": "3 rows", **marks}
        use = {"type": "tool_use", "id": "t1", "name": "t", "input": {}}
        said = [HI, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        return json.dumps(
            parse_messages({"model": "ostinato", "max_tokens": 9, "messages": said}).messages[-1]
        )

    assert results(is_error=True) != results() == results(is_error=False)
