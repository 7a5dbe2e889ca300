"""The real Anthropic client against the gateway."""

import asyncio
from collections.abc import AsyncIterator

import anthropic
import pytest

from ostinato.store import Store
from ostinato.types import FinishReason, TurnKind

HI = {"role": "user", "content": "hi"}
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "calc.py"}}\n</tool_call>'
READ = {
    "name": "read",
    "description": "Reads a file.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    "cache_control": {"type": "ephemeral"},
}
NAMED = {"extra_headers": {"X-Claude-Code-Session-Id": "0199e8a0-7d6e-7000-8000-000000000001"}}
SESSION = "0199e8a0-7d6e-7000-8000-000000000001"


@pytest.fixture
async def sdk(gateway: str) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=gateway, api_key="key-of-ada", max_retries=0) as client:
        yield client


async def ask(sdk: anthropic.AsyncAnthropic, *messages, **more):
    return await sdk.messages.create(**{"model": "ostinato", "max_tokens": 500, "messages": messages} | more)


async def test_an_answer(sdk, store: Store) -> None:
    answer = await ask(sdk, HI, system="Be brief.", **NAMED)
    assert (answer.content[0].text, answer.stop_reason, answer.role) == ("done", "end_turn", "assistant")
    (turn,) = store.turns(SESSION)
    assert answer.usage.input_tokens == len(turn.prompt_ids)
    assert answer.usage.output_tokens == len(turn.completion.ids)


async def test_all_that_real_clients_send_is_taken(sdk, script, store: Store, renderer) -> None:
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=1;"},
        {"type": "text", "text": "You are Claude Code.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be brief."},
    ]
    body = {
        "temperature": 1,
        "thinking": {"type": "adaptive"},
        "metadata": {"user_id": f"user_1_account__session_{SESSION}"},
        "context_management": {"edits": []},
        "output_config": {"effort": "high"},
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": False},
    }
    content = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages = [{"role": "user", "content": content}, {"role": "system", "content": "by the way"}]
    await ask(sdk, *messages, system=system, tools=[READ], extra_body=body)
    (turn,) = store.turns(SESSION)
    text = renderer.tokenizer.decode(turn.prompt_ids)
    assert "You are Claude Code.\n\nBe brief." in text
    assert "billing" not in text
    assert "user\none\n\ntwo<" in text
    assert "system\nby the way<" in text
    assert '{"name": "read", "description": "Reads a file.", "parameters": {' in text


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_and_results_stay_exact(sdk, script, store: Store, stream: bool) -> None:
    script.say = lambda prompt: (
        f"look\n{CALL}\n{CALL}" if "response" not in prompt.split("hi")[-1] else "seen"
    )
    if stream:
        async with sdk.messages.stream(
            model="ostinato", max_tokens=500, messages=[HI], tools=[READ], **NAMED
        ) as events:
            answer = await events.get_final_message()
    else:
        answer = await ask(sdk, HI, tools=[READ], **NAMED)
    assert answer.stop_reason == "tool_use"
    text, *calls = answer.content
    assert text.text == "look"
    assert [(call.name, call.input) for call in calls] == [("read", {"path": "calc.py"})] * 2
    assert len({call.id for call in calls}) == 2
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    said = {"role": "assistant", "content": [thinking, *(block.model_dump() for block in answer.content)]}
    content = [{"type": "text", "text": "def alpha(): ..."}]
    results = [
        {"type": "tool_result", "tool_use_id": calls[0].id, "content": content},
        {"type": "tool_result", "tool_use_id": calls[1].id, "content": "no", "is_error": True},
        {"type": "text", "text": "and now?"},
    ]
    again = await ask(sdk, HI, said, {"role": "user", "content": results}, tools=[READ], **NAMED)
    assert again.content[0].text == "seen"
    first, second = store.turns(SESSION)
    assert (first.segment, second.segment, second.untrainable) == (0, 0, None)
    kept = first.prompt_ids + first.completion.ids
    assert second.prompt_ids[: len(kept)] == kept


async def test_a_stream_is_the_whole_answer(sdk, script) -> None:
    for words in ("done", "look\n" + CALL, CALL, "", "<tool_call>\n{oops\n</tool_call>", "é🙂" * 9):
        script.say = lambda prompt, words=words: words
        whole = await ask(sdk, HI, tools=[READ])
        async with sdk.messages.stream(
            model="ostinato", max_tokens=500, messages=[HI], tools=[READ]
        ) as events:
            streamed = await events.get_final_message()
        assert [block.model_dump(exclude={"id"}) for block in streamed.content] == [
            block.model_dump(exclude={"id"}) for block in whole.content
        ]
        assert streamed.stop_reason == whole.stop_reason
        assert streamed.usage.output_tokens == whole.usage.output_tokens


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_sequence_ends_it_to_the_token(
    sdk, script, store: Store, renderer, stream: bool
) -> None:
    script.say = lambda prompt: "one two STOP three"
    body = {"model": "ostinato", "max_tokens": 500, "messages": [HI], "stop_sequences": ["nope", "STOP"]}
    if stream:
        async with sdk.messages.stream(**body, **NAMED) as events:
            answer = await events.get_final_message()
    else:
        answer = await sdk.messages.create(**body, **NAMED)
    assert (answer.content[0].text, answer.stop_reason, answer.stop_sequence) == (
        "one two ",
        "stop_sequence",
        "STOP",
    )
    (turn,) = store.turns(SESSION)
    assert turn.completion.finish is FinishReason.STOP_SEQUENCE
    assert renderer.tokenizer.decode(turn.completion.ids).startswith("one two STOP")
    said = {"role": "assistant", "content": answer.content[0].text}
    await ask(sdk, HI, said, HI, **NAMED)
    assert [turn.segment for turn in store.turns(SESSION)] == [0, 0]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_sequence_frees_the_engine(serve_lines, gateway_of, renderer, stream: bool) -> None:
    freed, (word,) = asyncio.Event(), renderer.tokenizer.encode("C")

    async def lines(asked):
        try:
            while True:
                yield {"id": word, "logprob": -0.5, "version": 1}
                await asyncio.sleep(0.01)
        finally:
            freed.set()

    url = await gateway_of(await serve_lines(lines))
    body = {"model": "ostinato", "max_tokens": 9000, "messages": [HI], "stop_sequences": ["CCC"]}
    async with anthropic.AsyncAnthropic(base_url=url, api_key="key-of-ada", max_retries=0) as client:
        answer = await client.messages.create(**body, stream=stream)
        if stream:
            assert [event async for event in answer]
    await asyncio.wait_for(freed.wait(), 300)


async def test_tokens_are_counted(sdk, store: Store) -> None:
    counted = await sdk.messages.count_tokens(model="ostinato", messages=[HI], system="x", tools=[READ])
    answer = await ask(sdk, HI, system="x", tools=[READ])
    assert counted.input_tokens == answer.usage.input_tokens


async def test_a_title_is_no_work(sdk, store: Store) -> None:
    await ask(sdk, HI, system="Write a sentence-case title.", **NAMED)
    await ask(sdk, HI, **NAMED)
    assert [turn.kind for turn in store.turns(SESSION)] == [TurnKind.SIDE, TurnKind.MAIN]


async def test_errors_are_the_clients_own_kinds(sdk, gateway: str) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    with pytest.raises(anthropic.NotFoundError, match="unknown model"):
        await ask(sdk, HI, model="claude-x")
    with pytest.raises(
        anthropic.BadRequestError, match=r"messages\[0\].content\[0\] holds 'image'"
    ) as caught:
        await ask(sdk, {"role": "user", "content": [image]})
    assert caught.value.body["type"] == "error"
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    assert caught.value.request_id
    with pytest.raises(anthropic.BadRequestError, match="prefilled"):
        await ask(sdk, HI, {"role": "assistant", "content": "{"})
    with pytest.raises(anthropic.BadRequestError, match="give a tool with an input_schema"):
        await ask(sdk, HI, tools=[{"type": "bash_20250124", "name": "bash"}])
    async with anthropic.AsyncAnthropic(base_url=gateway, api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(anthropic.AuthenticationError, match="not known"):
            await ask(stranger, HI)


async def test_the_models(sdk) -> None:
    models = [model async for model in await sdk.models.list()]
    assert [model.id for model in models] == ["ostinato"]
    assert (await sdk.models.retrieve("ostinato")).display_name == "ostinato"
    with pytest.raises(anthropic.NotFoundError, match="unknown model"):
        await sdk.models.retrieve("claude-x")


async def test_an_answer_that_was_another_models_thinking_alone_leaves_nothing(
    sdk, store: Store, renderer
) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "another"}
    await ask(sdk, HI, {"role": "assistant", "content": [thought]}, HI, **NAMED)
    (turn,) = store.turns(SESSION)
    assert renderer.tokenizer.decode(turn.prompt_ids).count("<|im_start|>assistant") == 1
