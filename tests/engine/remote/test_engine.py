"""Covers engine/remote/engine.py: a fake of vLLM's server over real HTTP."""

from typing import Any

import pytest
from tests.engine.remote.fake_vllm import CONTEXT, LOGPROB, fake_vllm

from ostinato.engine.base import EngineError, InvalidRequestError, LoadRefusedError
from ostinato.engine.remote.engine import RemoteEngine
from ostinato.model.tokenizer import IM_END, Tokenizer
from ostinato.types import Distribution, FinishReason, GenerateRequest, Sampling, Structure, StructureKind

TOKENIZER = Tokenizer.train(["the file holds the answer " * 4], 300)
OTHER = Tokenizer.train(["quite another corpus of words " * 4], 310)
STOP = TOKENIZER.encode(IM_END)[0]
IDS = (*TOKENIZER.encode("the answer"), STOP)


def asked(**more: Any) -> GenerateRequest:
    settings = {
        "request_id": "s/0",
        "session_id": "s",
        "prompt_ids": (1, 2),
        "stop_ids": (STOP,),
        "max_tokens": 8,
    }
    return GenerateRequest(**(settings | more))


async def test_ids_go_in_and_ids_with_their_logprobs_come_out() -> None:
    async with fake_vllm(TOKENIZER, IDS) as (url, bodies):
        engine = await RemoteEngine.connect(url, TOKENIZER, version=4)
        completion = await engine.generate(asked(sampling=Sampling(temperature=0.5, top_p=0.9, seed=7)))
        await engine.aclose()
    count = len(IDS)
    assert (completion.ids, completion.versions) == (IDS, (4,) * count)
    assert completion.logprobs == (LOGPROB,) * count
    assert completion.finish is FinishReason.STOP
    assert completion.distribution is Distribution.PROCESSED
    assert (engine.abilities.model, engine.abilities.context) == ("smol", CONTEXT)
    assert engine.abilities.token_ids and engine.abilities.logprobs
    body = bodies[-1]
    assert (body["prompt"], body["stop_token_ids"], body["return_token_ids"]) == ([1, 2], [STOP], True)
    assert (body["temperature"], body["top_p"], body["seed"]) == (0.5, 0.9, 7)


@pytest.mark.parametrize(("token_ids", "logprobs"), [(False, True), (True, False), (False, False)])
async def test_a_server_without_ids_or_logprobs_is_served_and_never_trained(
    token_ids: bool, logprobs: bool
) -> None:
    async with fake_vllm(TOKENIZER, IDS, token_ids=token_ids, logprobs=logprobs) as (url, _):
        engine = await RemoteEngine.connect(url, TOKENIZER)
        completion = await engine.generate(asked())
        await engine.aclose()
    assert (engine.abilities.token_ids, engine.abilities.logprobs) == (token_ids, logprobs)
    assert TOKENIZER.decode(completion.ids) == f"the answer{IM_END}"
    assert completion.distribution is Distribution.UNKNOWN


@pytest.mark.parametrize(
    ("tempered", "distribution"), [(True, Distribution.TEMPERED), (False, Distribution.MODEL)]
)
async def test_it_finds_out_what_distribution_the_logprobs_are_of(
    tempered: bool, distribution: Distribution
) -> None:
    async with fake_vllm(TOKENIZER, IDS, tempered=tempered) as (url, _):
        engine = await RemoteEngine.connect(url, TOKENIZER)
        completion = await engine.generate(asked(sampling=Sampling(temperature=0.3)))
        await engine.aclose()
    assert (engine.abilities.tempered, completion.distribution) == (tempered, distribution)


async def test_a_server_with_another_tokenizer_is_refused_at_the_start() -> None:
    async with fake_vllm(OTHER, IDS) as (url, _):
        with pytest.raises(EngineError, match="serves 'smol' with another tokenizer than this checkpoint's"):
            await RemoteEngine.connect(url, TOKENIZER)


async def test_a_server_that_does_not_say_its_context_is_refused() -> None:
    """As Ollama does not."""
    async with fake_vllm(TOKENIZER, IDS, context=None) as (url, _):
        with pytest.raises(EngineError, match=r"serves \['smol'\]: need one model of vLLM"):
            await RemoteEngine.connect(url, TOKENIZER)


async def test_a_server_that_is_away_is_named() -> None:
    with pytest.raises(
        EngineError, match=r"127\.0\.0\.1:9/v1/models: it does not respond \(Cannot connect"
    ) as away:
        await RemoteEngine.connect("http://127.0.0.1:9", TOKENIZER)
    assert str(away.value).endswith("start the server there, or name another --engine")
    assert "Error(" not in str(away.value)


async def test_a_stream_that_ends_in_the_middle_is_the_engines_failure() -> None:
    async with fake_vllm(TOKENIZER, IDS, ends=False) as (url, _):
        engine = await RemoteEngine.connect(url, TOKENIZER)
        with pytest.raises(EngineError, match="ended the request with None"):
            await engine.generate(asked())
        await engine.aclose()


async def test_what_it_cannot_do_is_refused() -> None:
    async with fake_vllm(TOKENIZER, IDS) as (url, _):
        engine = await RemoteEngine.connect(url, TOKENIZER)
        with pytest.raises(InvalidRequestError, match="json_object"):
            await engine.generate(
                asked(sampling=Sampling(structure=Structure(kind=StructureKind.JSON_OBJECT)))
            )
        with pytest.raises(LoadRefusedError, match="version 5 was refused"):
            await engine.swap(5, {})
        await engine.aclose()
