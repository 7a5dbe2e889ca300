"""Ids, logprobs and versions are recorded as sampled: in every dialect, whole and streamed.

Covers gateway/turns.py and gateway/turn_response.py.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from tests.gateway.conftest import KEY, Script, serving

from ostinato.engine.base import Token
from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.gateway.access.keys import hash_key
from ostinato.model.families import Renderer
from ostinato.store import Store
from ostinato.types import Arm, Completion, GenerateRequest, Sampling

SAID = "the tokens of a conversation"


class TelemetrySources(ScriptedEngine):
    """Sample with another logprob for every token, and swap to version 8 in the middle."""

    async def generate(self, request: GenerateRequest) -> Completion:
        said = await super().generate(request)
        n = len(said.ids)
        versions = (7,) * (n // 2) + (8,) * (n - n // 2)
        return replace(said, logprobs=tuple(-0.125 * (i + 1) for i in range(n)), versions=versions)

    async def stream(self, request: GenerateRequest) -> AsyncGenerator[Token | Completion]:
        said = await self.generate(request)
        for id_, logprob, version in zip(said.ids, said.logprobs, said.versions, strict=True):
            yield Token(id=id_, logprob=logprob, version=version)
        yield said


@pytest.fixture
async def door(store: Store, renderer: Renderer, script: Script) -> AsyncIterator[str]:
    script.say = lambda prompt: SAID
    engine = await serve_scripted(TelemetrySources(script))
    store.set_arms([Arm(name="main", version=7, share=1.0, engines=(engine.url,))])
    async with serving(store, renderer) as url:
        yield url
    await engine.close()


def body(path: str, stream: bool) -> dict[str, Any]:
    told: dict[str, Any] = {"model": "ostinato", "stream": stream, "temperature": 0.25}
    if path == "/v1/responses":
        return told | {"input": "hi"}
    return told | {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 100}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
async def test_the_record_holds_exactly_what_was_sampled(
    path: str, stream: bool, door: str, store: Store, renderer: Renderer
) -> None:
    headers = {"Authorization": f"Bearer {KEY}", "X-Session-Id": "s1"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.post(door + path, json=body(path, stream)) as response,
    ):
        assert response.status == 200, await response.text()
        await response.read()
    (turn,) = store.turns("s1")
    found = turn.completion
    n = len(found.ids)
    assert found.ids == (*renderer.tokenizer.encode(SAID), renderer.stop_ids[0])
    assert found.logprobs == tuple(-0.125 * (i + 1) for i in range(n))
    assert found.versions == (7,) * (n // 2) + (8,) * (n - n // 2)
    assert turn.prompt_ids == tuple(renderer.render([{"role": "user", "content": "hi"}]))
    assert turn.sampling == Sampling(temperature=0.25, seed=turn.sampling.seed) and turn.sampling.seed > 0


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
async def test_a_key_that_may_only_tell_may_not_ask(path: str, door: str, store: Store) -> None:
    store.add_key(hash_key("ear"), "eve", "feedback")
    async with (
        aiohttp.ClientSession(headers={"Authorization": "Bearer ear"}) as http,
        http.post(door + path, json=body(path, stream=False)) as response,
    ):
        assert response.status == 403
        assert "not use: ask for one" in await response.text()
    assert store.sessions() == []
