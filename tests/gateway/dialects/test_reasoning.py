"""Reasoning comes back in each dialect's own field, and a client that returns it extends the recorded ids.

The clients are the real SDKs; the renderer reads what the model wrote between two tags as reasoning.

Covers gateway/dialects/response_input.py.
"""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from tests.gateway.conftest import KEY, Script, serving

from ostinato.gateway.dialects import reasoning
from ostinato.model.families import HermesRenderer, Parsed, Renderer
from ostinato.store import Store

THOUGHT, SAID = "the tokens, then the gateway", "a conversation"
HI = {"role": "user", "content": "hi"}
MORE = {"role": "user", "content": "and then?"}


class Thinker(HermesRenderer):
    """A renderer of a model that reasons between `<think>` and `</think>`."""

    think = ("<think>", "</think>")

    def parse(self, completion_ids: Any) -> Parsed:
        parsed = super().parse(completion_ids)
        thought, closed, rest = parsed.content.removeprefix("<think>").partition("</think>")
        return replace(parsed, reasoning=thought, content=rest) if closed else parsed


@pytest.fixture
async def thinking(store: Store, renderer: Renderer, engine: str, script: Script) -> AsyncIterator[str]:
    script.say = lambda prompt: f"<think>{THOUGHT}</think>{SAID}"
    async with serving(store, Thinker(renderer.tokenizer)) as url:
        yield url


def assert_extended(store: Store) -> None:
    """Assert that the second turn's prompt begins with all that the first one read and sampled."""
    first, second = store.turns("s1")
    before = first.prompt_ids + first.completion.ids
    assert second.prompt_ids[: len(before)] == before
    assert first.segment == second.segment and second.untrainable is None


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kept", ["reasoning_content", "reasoning", None])
async def test_chat_completions(kept: str | None, stream: bool, thinking: str, store: Store) -> None:
    sdk = openai.AsyncOpenAI(
        base_url=thinking + "/v1", api_key=KEY, max_retries=0, default_headers={"X-Session-Id": "s1"}
    )
    ask: Any = sdk.chat.completions.create
    if stream:
        thought = content = ""
        async for chunk in await ask(model="ostinato", messages=[HI], stream=True):
            delta = chunk.choices[0].delta
            thought += getattr(delta, "reasoning_content", None) or ""
            content += delta.content or ""
    else:
        message = (await ask(model="ostinato", messages=[HI])).choices[0].message
        thought, content = message.reasoning_content, message.content
        assert message.reasoning == thought
    assert (thought, content) == (THOUGHT, SAID)
    said = {"role": "assistant", "content": content} | ({kept: thought} if kept else {})
    await ask(model="ostinato", messages=[HI, said, MORE])
    assert_extended(store)
    await sdk.close()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "dropped"])
async def test_messages(kept: bool, stream: bool, thinking: str, store: Store) -> None:
    sdk = anthropic.AsyncAnthropic(
        base_url=thinking, api_key=KEY, max_retries=0, default_headers={"X-Session-Id": "s1"}
    )
    told: dict[str, Any] = {"model": "ostinato", "max_tokens": 99}
    if stream:
        async with sdk.messages.stream(**told, messages=[HI]) as events:
            message = await events.get_final_message()
    else:
        message = await sdk.messages.create(**told, messages=[HI])
    thought, text = message.content
    assert (thought.type, thought.thinking, text.text) == ("thinking", THOUGHT, SAID)
    assert thought.signature == reasoning.sign(THOUGHT)
    content = [block.model_dump() for block in (message.content if kept else [text])]
    await sdk.messages.create(**told, messages=[HI, {"role": "assistant", "content": content}, MORE])
    assert_extended(store)
    await sdk.close()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "dropped"])
async def test_responses(kept: bool, stream: bool, thinking: str, store: Store) -> None:
    sdk = openai.AsyncOpenAI(
        base_url=thinking + "/v1", api_key=KEY, max_retries=0, default_headers={"X-Session-Id": "s1"}
    )
    told: dict[str, Any] = {"model": "ostinato", "include": ["reasoning.encrypted_content"], "store": False}
    if stream:
        async with sdk.responses.stream(**told, input=[HI]) as events:
            response = await events.get_final_response()
    else:
        response = await sdk.responses.create(**told, input=[HI])
    thought, message = response.output
    assert thought.type == "reasoning" and thought.content[0].text == THOUGHT
    assert message.content[0].text == SAID
    assert reasoning.of_item(thought.model_dump()) == THOUGHT
    items = [item.model_dump() for item in (response.output if kept else [message])]
    await sdk.responses.create(**told, input=[HI, *items, MORE])
    assert_extended(store)
    await sdk.close()


def test_only_what_we_signed_is_reasoning() -> None:
    block = reasoning.block(THOUGHT)
    assert reasoning.of_block(block) == THOUGHT
    assert reasoning.of_block(block | {"thinking": "another"}) == ""
    assert reasoning.of_block({"type": "thinking", "thinking": THOUGHT, "signature": "theirs"}) == ""
    assert reasoning.of_item({"type": "reasoning", "encrypted_content": "gAAAA-theirs"}) == ""
    assert reasoning.of_item({"type": "reasoning", "summary": []}) == ""


def test_a_chat_keeps_reasoning_under_one_name() -> None:
    said = {"role": "assistant", "content": "x", "reasoning": "y"}
    assert reasoning.of_chat(said) == {"role": "assistant", "content": "x", "reasoning_content": "y"}
    assert json.dumps(reasoning.of_chat({"role": "assistant", "content": "x", "reasoning": None})) == (
        '{"role": "assistant", "content": "x"}'
    )


async def test_long_reasoning_comes_in_short_lines(script: Script, thinking: str) -> None:
    thought = "word " * 4000
    script.say = lambda prompt: f"<think>{thought}</think>{SAID}"
    headers = {"Authorization": f"Bearer {KEY}"}
    for path, more in (("chat/completions", {}), ("messages", {"max_tokens": 50_000})):
        body = {"model": "ostinato", "messages": [HI], "stream": True} | more
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{thinking}/v1/{path}", json=body, headers=headers) as response,
        ):
            lines = (await response.text()).split("\n")
        assert response.status == 200 and max(map(len, lines)) < 8192
