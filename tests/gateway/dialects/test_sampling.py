"""Every setting of every dialect reaches the one form, and what asks for nothing changes nothing."""

from typing import Any

import pytest

from ostinato.gateway.dialects.chat import parse_chat
from ostinato.gateway.dialects.messages import parse_messages
from ostinato.gateway.dialects.responses import parse_responses
from ostinato.types import Sampling, Structure, StructureKind

CHAT = {"model": "ostinato", "messages": [{"role": "user", "content": "hi"}]}
MESSAGES = CHAT | {"max_tokens": 9}
RESPONSES = {"model": "ostinato", "input": "hi"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
AS_SCHEMA = Structure(
    kind=StructureKind.JSON_SCHEMA, text='{"type": "object", "properties": {"a": {"type": "integer"}}}'
)
OBJECT = Structure(kind=StructureKind.JSON_OBJECT)
BENT: dict[str, Any] = {
    "temperature": 0.25,
    "top_p": 0.9,
    "top_k": 20,
    "min_p": 0.05,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "repetition_penalty": 1.1,
}


def test_a_chat_passes_every_setting_on() -> None:
    chat = parse_chat(CHAT | BENT | {"seed": 7})
    assert chat.sampling == Sampling(**BENT, seed=7) and chat.seeded


def test_responses_pass_every_setting_on() -> None:
    chat = parse_responses(RESPONSES | BENT)
    assert chat.sampling == Sampling(**BENT) and not chat.seeded


def test_messages_pass_their_settings_on() -> None:
    mine = {name: BENT[name] for name in ("temperature", "top_p", "top_k")}
    assert parse_messages(MESSAGES | mine).sampling == Sampling(**mine)


@pytest.mark.parametrize("top_k", [0, -1, None])
def test_all_tokens_by_any_of_its_names(top_k: int | None) -> None:
    assert parse_chat(CHAT | {"top_k": top_k}).sampling == Sampling()
    assert parse_messages(MESSAGES | {"top_k": top_k}).sampling == Sampling()


@pytest.mark.parametrize(
    ("body", "structure"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, OBJECT),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}, AS_SCHEMA),
        ({"structured_outputs": {"json": SCHEMA}}, AS_SCHEMA),
        ({"structured_outputs": {"json_object": True}}, OBJECT),
        ({"structured_outputs": {"regex": "a|b"}}, Structure(kind=StructureKind.REGEX, text="a|b")),
        ({"structured_outputs": {"grammar": "root"}}, Structure(kind=StructureKind.GRAMMAR, text="root")),
        ({"structured_outputs": {}}, None),
    ],
)
def test_a_chat_may_ask_for_a_structure(body: dict[str, Any], structure: Structure | None) -> None:
    assert parse_chat(CHAT | body).sampling.structure == structure


def test_the_other_dialects_have_their_own_field_for_it() -> None:
    form = {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True}
    assert parse_responses(RESPONSES | {"text": {"format": form}}).sampling.structure == AS_SCHEMA
    assert parse_messages(MESSAGES | {"output_config": {"format": form}}).sampling.structure == AS_SCHEMA


def test_a_chat_that_wants_no_call_is_offered_no_tools() -> None:
    tools = [{"type": "function", "function": {"name": "read"}}]
    assert len(parse_chat(CHAT | {"tools": tools, "tool_choice": "auto"}).tools) == 1
    assert parse_chat(CHAT | {"tools": tools, "tool_choice": "none"}).tools == ()
