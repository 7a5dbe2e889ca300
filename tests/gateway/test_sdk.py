"""The real OpenAI client against the gateway."""

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest

from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.store import Store
from ostinato.types import Abilities, Arm, FinishReason

HI = {"role": "user", "content": "hi"}
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "calc.py"}}\n</tool_call>'


@pytest.fixture
async def sdk(gateway: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=gateway + "/v1", api_key="key-of-ada", max_retries=0) as client:
        yield client


async def ask(sdk: openai.AsyncOpenAI, *messages, **more):
    return await sdk.chat.completions.create(model="ostinato", messages=messages, **more)


async def test_an_answer(sdk) -> None:
    answer = await ask(sdk, HI, max_tokens=20, temperature=0.5, seed=1)
    assert answer.choices[0].message.content == "done"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_an_answer_cut_at_the_limit(sdk, script, store: Store) -> None:
    script.say = lambda prompt: "a long story " * 9
    answer = await ask(sdk, HI, max_tokens=5)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 5
    assert answer.model_extra["ostinato"]["broken"] is None


async def test_a_call_cut_at_the_limit_is_short_and_not_broken(sdk, script, read_tool, store: Store) -> None:
    script.say = lambda prompt: "look\n" + CALL
    headers = {"X-Session-Id": "s1"}
    answer = await ask(sdk, HI, tools=[read_tool], extra_headers=headers, max_tokens=8)
    assert (answer.choices[0].finish_reason, answer.choices[0].message.tool_calls) == ("length", None)
    (turn,) = store.turns("s1")
    assert (turn.broken, turn.completion.finish) == (None, FinishReason.LENGTH)


async def test_a_tool_call_and_its_result(sdk, script, read_tool, store: Store) -> None:
    script.say = lambda prompt: "look\n" + CALL if "response" not in prompt.split("hi")[-1] else "seen"
    headers = {"X-Session-Id": "s1"}
    answer = await ask(sdk, HI, tools=[read_tool], extra_headers=headers)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    assert message.content == "look"
    (call,) = message.tool_calls
    assert (call.function.name, call.function.arguments) == ("read", '{"path": "calc.py"}')
    result = {"role": "tool", "tool_call_id": call.id, "content": "def alpha(): ..."}
    answer = await ask(sdk, HI, message, result, tools=[read_tool], extra_headers=headers)
    assert answer.choices[0].message.content == "seen"
    first, second = store.turns("s1")
    assert (first.segment, second.segment) == (0, 0)
    kept = first.prompt_ids + first.completion.ids
    assert second.prompt_ids[: len(kept)] == kept


async def test_a_stream(sdk, store: Store) -> None:
    stream = await ask(sdk, HI, stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "done"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.total_tokens > 0
    extra = chunks[-2].model_extra["ostinato"]
    (turn,) = store.turns(extra["session"])
    assert turn.completion.versions == (-1,) * chunks[-1].usage.completion_tokens


async def test_a_streamed_tool_call_arrives_whole(sdk, script, read_tool) -> None:
    script.say = lambda prompt: "look\n" + CALL
    chunks = [chunk async for chunk in await ask(sdk, HI, tools=[read_tool], stream=True)]
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(delta.content or "" for delta in deltas) == "look"
    ((call,),) = [delta.tool_calls for delta in deltas if delta.tool_calls]
    assert (call.index, call.function.name, call.function.arguments) == (0, "read", '{"path": "calc.py"}')
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


async def test_a_call_that_cannot_be_read_is_content_and_marked(sdk, script, store: Store) -> None:
    script.say = lambda prompt: "<tool_call>\n{oops\n</tool_call>"
    answer = await ask(sdk, HI)
    assert answer.choices[0].message.content == "<tool_call>\n{oops\n</tool_call>"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model_extra["ostinato"]["broken"] == "bad JSON in a tool call"
    streamed = [chunk async for chunk in await ask(sdk, HI, stream=True)]
    assert "".join(c.choices[0].delta.content or "" for c in streamed) == "<tool_call>\n{oops\n</tool_call>"


async def test_a_call_of_no_offered_tool_is_returned_and_marked(sdk, script, store: Store) -> None:
    script.say = lambda prompt: CALL
    answer = await ask(sdk, HI, extra_headers={"X-Session-Id": "s1"})
    assert answer.choices[0].message.tool_calls[0].function.name == "read"
    assert store.turns("s1")[0].broken == "unknown tool read"


async def test_a_call_that_strict_readers_refuse_is_broken_and_not_sent(sdk, script, store: Store) -> None:
    script.say = lambda prompt: (
        '<tool_call>\n{"name": "\\ud800", "arguments": {"x": "\\ud800"}}\n</tool_call>'
    )
    headers = {"X-Session-Id": "s1"}
    message = (await ask(sdk, HI, extra_headers=headers)).choices[0].message
    assert message.tool_calls is None
    await ask(sdk, HI, message, HI, extra_headers=headers)
    assert [(turn.segment, turn.broken) for turn in store.turns("s1")] == [(0, "bad JSON in a tool call")] * 2


async def test_errors_are_the_clients_own_kinds(sdk, gateway: str) -> None:
    with pytest.raises(openai.NotFoundError, match="unknown model"):
        await sdk.chat.completions.create(model="gpt-4", messages=[HI])
    with pytest.raises(openai.BadRequestError, match="reads only text"):
        await ask(sdk, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]})
    with pytest.raises(openai.PermissionDeniedError, match="role admin"):
        await ask(sdk, HI, extra_headers={"X-Session-Source": "practice"})
    async with openai.AsyncOpenAI(base_url=gateway + "/v1", api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError, match="not known"):
            await ask(stranger, HI)


async def test_the_models(sdk) -> None:
    (model,) = (await sdk.models.list()).data
    assert model.id == "ostinato"
    assert model.model_extra["arms"] == [{"name": "main", "version": 3, "share": 1.0}]
    assert "max_model_len" not in model.model_extra


async def test_the_context_that_is_published_is_that_of_the_users_arm(sdk, script, store: Store) -> None:
    running = await serve_scripted(ScriptedEngine(script, abilities=Abilities(context=4096)))
    store.set_arms([Arm(name="long", version=4, share=1.0, engines=(running.url,))])
    while (model := (await sdk.models.list()).data[0]).model_extra["arms"][0]["name"] != "long":
        await asyncio.sleep(0.05)
    one = await sdk.models.retrieve("ostinato")
    assert model.model_extra["max_model_len"] == one.model_extra["max_model_len"] == 4096
    store.set_arms([])
    while (model := (await sdk.models.list()).data[0]).model_extra["arms"]:
        await asyncio.sleep(0.05)
    assert "max_model_len" not in model.model_extra
    await running.close()


async def test_many_at_once(sdk, store: Store) -> None:
    answers = await asyncio.gather(*(ask(sdk, HI) for _ in range(40)))
    sessions = {answer.model_extra["ostinato"]["session"] for answer in answers}
    assert len(sessions) == 40
    assert {len(turns) for turns in store.turns_of(sessions).values()} == {1}
