"""A scripted engine returns what its policy says, over the same HTTP as a model."""

import aiohttp
import pytest
from tests.engine.toolbox import request

from ostinato.engine.base import EngineError, InvalidRequestError
from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.types import (
    TEACHER_VERSION,
    Abilities,
    Completion,
    FinishReason,
    GenerateRequest,
    from_json,
    to_json,
)


async def echo(asked: GenerateRequest) -> tuple[int, ...]:
    return (*asked.prompt_ids, 0)


async def test_a_completion_has_the_tokens_of_the_policy() -> None:
    engine = ScriptedEngine(echo)
    got = await engine.generate(request(1, prompt_ids=(5, 6), stop_ids=(0,)))
    assert got.ids == (5, 6, 0) and got.finish is FinishReason.STOP
    assert set(got.versions) == {TEACHER_VERSION} and set(got.logprobs) == {0.0}
    cut = await engine.generate(request(1, prompt_ids=(5, 6), max_tokens=2))
    assert cut.ids == (5, 6) and cut.finish is FinishReason.LENGTH
    assert engine.stats() == {"requests": 2, "tokens": 5, "failed": 0, "swaps": 0}


async def test_it_serves_the_same_http() -> None:
    running = await serve_scripted(ScriptedEngine(echo))
    async with aiohttp.ClientSession(running.url) as session:
        body = to_json(request(1, prompt_ids=(5, 6), stop_ids=(0,)))
        async with session.post("/generate", json=body) as response:
            assert from_json(Completion, await response.json()).ids == (5, 6, 0)
        async with session.get("/healthz") as response:
            health = await response.json()
            assert health["version"] == TEACHER_VERSION
            assert from_json(Abilities, health["abilities"]) == Abilities()
        async with session.post("/load", json={"version": 3}) as response:
            assert response.status == 409
    await running.close()


async def test_a_setting_that_it_does_not_claim_is_refused() -> None:
    bent = request(1, top_p=0.5)
    with pytest.raises(InvalidRequestError, match="r1: the engine '' cannot sample with top_p"):
        await ScriptedEngine(echo).generate(bent)
    able = ScriptedEngine(echo, Abilities(sampling=frozenset({"top_p"})))
    assert (await able.generate(bent)).ids


async def test_it_has_no_weights() -> None:
    with pytest.raises(EngineError, match="no weights"):
        await ScriptedEngine(echo).swap(1, {})
