"""The real OpenAI client's Responses against the gateway."""

import json
from collections.abc import AsyncIterator

import openai
import pytest

from ostinato.store import Store

CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "calc.py"}}\n</tool_call>'
PATCH = '<tool_call>\n{"name": "apply_patch", "arguments": {"input": "*** Begin\\n"}}\n</tool_call>'
SHELL = (
    '<tool_call>\n{"name": "local_shell", "arguments": {"command": ["ls"], "workdir": "/r"}}\n</tool_call>'
)
READ = {
    "type": "function",
    "name": "read",
    "strict": False,
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}
TOOLS = [
    READ,
    {
        "type": "custom",
        "name": "apply_patch",
        "format": {"type": "grammar", "syntax": "lark", "definition": ""},
    },
    {"type": "local_shell"},
    {"type": "web_search", "external_web_access": False},
]
SESSION = "0199e8a0-7d6e-7000-8000-000000000001"
NAMED = {"extra_headers": {"session_id": SESSION}}


@pytest.fixture
async def sdk(gateway: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=gateway + "/v1", api_key="key-of-ada", max_retries=0) as client:
        yield client


async def ask(sdk: openai.AsyncOpenAI, given: object, **more):
    return await sdk.responses.create(**{"model": "ostinato", "input": given} | more)


async def streamed(sdk: openai.AsyncOpenAI, given: object, **more):
    async with sdk.responses.stream(model="ostinato", input=given, **more) as events:
        kinds = [event.type async for event in events]
        return kinds, await events.get_final_response()


async def test_an_answer(sdk, store: Store) -> None:
    answer = await ask(sdk, "hi", instructions="Be brief.", **NAMED)
    assert (answer.output_text, answer.status) == ("done", "completed")
    (turn,) = store.turns(SESSION)
    assert answer.usage.total_tokens == len(turn.prompt_ids) + len(turn.completion.ids)


async def test_all_that_codex_sends_is_taken(sdk, store: Store, renderer) -> None:
    given = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    ]
    more = {
        "instructions": "You are Codex.",
        "tools": TOOLS,
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": SESSION,
        "text": {"verbosity": "low"},
    }
    kinds, answer = await streamed(sdk, given, **more)
    assert answer.output_text == "done"
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    (turn,) = store.turns(SESSION)
    text = renderer.tokenizer.decode(turn.prompt_ids)
    assert "You are Codex." in text
    assert "system\nrules<" in text
    assert "web_search" not in text
    assert '"name": "local_shell"' in text


@pytest.mark.parametrize("stream", [False, True])
async def test_every_shape_of_call_comes_back_exact(sdk, script, store: Store, stream: bool) -> None:
    script.say = lambda prompt: (
        f"look\n{CALL}\n{PATCH}\n{SHELL}" if "response" not in prompt.split("hi")[-1] else "seen"
    )
    user = {"role": "user", "content": "hi"}
    if stream:
        _, answer = await streamed(sdk, [user], tools=TOOLS, **NAMED)
    else:
        answer = await ask(sdk, [user], tools=TOOLS, **NAMED)
    message, read, patch, shell = answer.output
    assert message.content[0].text == "look"
    assert (read.type, json.loads(read.arguments)) == ("function_call", {"path": "calc.py"})
    assert (patch.type, patch.input) == ("custom_tool_call", "*** Begin\n")
    assert (shell.type, shell.action.command, shell.action.working_directory) == (
        "local_shell_call",
        ["ls"],
        "/r",
    )
    said = [item.model_dump(exclude_none=True) for item in answer.output]
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    results = [
        {"type": "function_call_output", "call_id": read.call_id, "output": "def alpha(): ..."},
        {
            "type": "custom_tool_call_output",
            "call_id": patch.call_id,
            "output": [{"type": "input_text", "text": "ok"}],
        },
        {"type": "local_shell_call_output", "id": shell.id, "output": "calc.py"},
    ]
    again = await ask(sdk, [user, reasoning, *said, *results], tools=TOOLS, **NAMED)
    assert again.output_text == "seen"
    first, second = store.turns(SESSION)
    assert (first.segment, second.segment, second.untrainable) == (0, 0, None)
    kept = first.prompt_ids + first.completion.ids
    assert second.prompt_ids[: len(kept)] == kept


async def test_a_stream_is_the_whole_answer(sdk, script) -> None:
    for words in (
        "done",
        "look\n" + CALL,
        CALL,
        PATCH,
        SHELL,
        "",
        "<tool_call>\n{oops\n</tool_call>",
        "é🙂" * 9,
    ):
        script.say = lambda prompt, words=words: words
        whole = await ask(sdk, "hi", tools=TOOLS)
        _, other = await streamed(sdk, "hi", tools=TOOLS)
        ids = {"output": {"__all__": {"id"}}, "id": True, "created_at": True}
        told = [answer.model_dump(exclude=ids, mode="json") for answer in (whole, other)]
        for answer in told:
            answer.pop("ostinato", None)
            for item in answer["output"]:
                for part in item.get("content") or []:
                    part.pop("parsed", None)
                item.pop("parsed_arguments", None)
        assert told[0] == told[1]


async def test_a_limit_is_an_incomplete_response(sdk, script) -> None:
    script.say = lambda prompt: "a long story " * 9
    events = [event async for event in await ask(sdk, "hi", max_output_tokens=5, stream=True)]
    answer = events[-1].response
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert events[-1].type == "response.incomplete"


async def test_a_field_that_cannot_be_honoured_is_named(sdk) -> None:
    for more, words in (
        ({"previous_response_id": "r"}, "previous_response_id is not supported"),
        ({"conversation": "c"}, "conversation is not supported"),
        ({"tools": [{"type": "computer_use_preview"}]}, "has the type 'computer_use_preview'"),
        ({"tool_choice": "required"}, "tool_choice is only supported as 'auto'"),
        ({"text": {"format": {"type": "xml"}}}, "text.format must have the type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "holds 'input_image'"),
        ({"input": [{"type": "image_generation_call"}]}, "has the type 'image_generation_call'"),
        ({"input": []}, "at least one item"),
    ):
        with pytest.raises(openai.BadRequestError, match=words):
            await ask(sdk, "hi", **more)


async def test_an_answer_says_what_was_chosen(sdk) -> None:
    answer = await ask(sdk, "hi", tools=[READ], tool_choice="none")
    assert answer.tool_choice == "none"
    with pytest.raises(openai.BadRequestError, match="logprobs is not supported"):
        await ask(sdk, "hi", include=["message.output_text.logprobs"])
