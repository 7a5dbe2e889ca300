"""The promises of every engine that serves a model, as tests. The tests of an engine inherit `Contract`.

The engine under test is the fixture `served`: `model(1)` as version 1 with `MAX_LEN` tokens of context.
"""

import asyncio
from typing import Any

import pytest
import torch
from tests.engine.toolbox import decoder, fresh, request

from ostinato.engine.base import (
    Engine,
    EngineError,
    InvalidRequestError,
    LoadRefusedError,
    PromptTooLongError,
    Token,
)
from ostinato.model.decoder import Decoder
from ostinato.types import Completion, FinishReason, GenerateRequest

VOCABULARY = 270
"""Not a multiple of anything that a kernel would like."""
MAX_LEN = 128
EXACT = 1e-4
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "heads": 2,
    "kv_heads": 1,
    "head_dim": 32,
    "experts": 4,
    "expert_size": 32,
}
SWAPS = 24
BENT: dict[str, Any] = {
    "top_p": 0.5,
    "top_k": 3,
    "min_p": 0.1,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "repetition_penalty": 1.2,
}


def model(version: int) -> Decoder:
    """Return the weights of `version` in these tests."""
    return decoder(version, **SIZES)


def assert_exact(asked: GenerateRequest, got: Completion) -> None:
    """Assert that every log-probability is that of a forward pass of the version in the completion."""
    (version,) = set(got.versions)
    logprobs, _ = fresh(model(version), asked, got)
    assert (logprobs - torch.tensor(got.logprobs)).abs().max() < EXACT


class Contract:
    """Tests of one engine; they leave it serving, with a version that only grows."""

    async def test_logprobs_are_those_of_a_fresh_forward(self, served: Engine) -> None:
        asked = [request(i, length=3 + 9 * i, max_tokens=15, temperature=0.5 + i % 3 / 2) for i in range(10)]
        for sent, got in zip(asked, await asyncio.gather(*map(served.generate, asked)), strict=True):
            assert len(got.ids) == 15 and set(got.versions) == {served.version}
            assert_exact(sent, got)

    async def test_temperature_zero_is_greedy(self, served: Engine) -> None:
        asked = request(1, temperature=0.0)
        got = await served.generate(asked)
        with torch.no_grad():
            logits = model(served.version)(torch.tensor([asked.prompt_ids + got.ids]))[0][0]
        start = len(asked.prompt_ids)
        for token, row in zip(got.ids, logits[start - 1 : -1], strict=True):
            assert row[token] > row.max() - EXACT
        assert_exact(asked, got)

    async def test_stop_and_length(self, served: Engine) -> None:
        free = await served.generate(request(1, max_tokens=30))
        stop = free.ids[4]
        got = await served.generate(request(1, max_tokens=30, stop_ids=(stop,)))
        assert got.finish is FinishReason.STOP and got.ids[-1] == stop
        assert stop not in got.ids[:-1] and len(got.logprobs) == len(got.ids)
        assert len(free.ids) == 30 and free.finish is FinishReason.LENGTH
        room = await served.generate(request(1, length=100, max_tokens=1000))
        assert len(room.ids) == MAX_LEN - 100 and room.finish is FinishReason.LENGTH

    async def test_a_stream_is_the_completion_in_pieces(self, served: Engine) -> None:
        events = [event async for event in served.stream(request(1))]
        whole = events[-1]
        assert isinstance(whole, Completion)
        tokens = [event for event in events if isinstance(event, Token)]
        assert tuple(token.id for token in tokens) == whole.ids
        assert tuple(token.logprob for token in tokens) == whole.logprobs
        assert tuple(token.version for token in tokens) == whole.versions

    @pytest.mark.parametrize(
        ("fields", "error"),
        [
            ({"length": MAX_LEN}, PromptTooLongError),
            ({"prompt_ids": ()}, InvalidRequestError),
            ({"prompt_ids": (VOCABULARY,)}, InvalidRequestError),
            ({"stop_ids": (-1,)}, InvalidRequestError),
        ],
    )
    async def test_invalid_requests_are_refused(
        self, served: Engine, fields: dict[str, Any], error: type[EngineError]
    ) -> None:
        with pytest.raises(error, match="r1: "):
            await served.generate(request(1, **fields))

    @pytest.mark.parametrize("name", sorted(BENT))
    async def test_a_setting_is_honoured_or_refused_by_name(self, served: Engine, name: str) -> None:
        asked = request(1, **{name: BENT[name]})
        if name in served.abilities.sampling:
            assert len((await served.generate(asked)).ids) == 12
        else:
            with pytest.raises(InvalidRequestError, match=f"r1: .* {name}"):
                await served.generate(asked)

    async def test_it_says_what_it_can_do(self, served: Engine) -> None:
        assert served.abilities.context == MAX_LEN
        assert served.abilities.token_ids and served.abilities.logprobs

    async def test_cancelling_ends_a_request(self, served: Engine) -> None:
        task = asyncio.create_task(served.generate(request(1, max_tokens=110)))
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert served.stats()["running"] == 0
        assert len((await served.generate(request(2))).ids) == 12

    async def test_a_pause_keeps_requests(self, served: Engine) -> None:
        running = [asyncio.create_task(served.generate(request(i, max_tokens=80))) for i in range(4)]
        while not served.stats()["tokens"]:
            await asyncio.sleep(0)
        await served.pause()
        before = served.stats()["tokens"]
        late = asyncio.create_task(served.generate(request(9)))
        await asyncio.sleep(0.1)
        assert served.stats()["tokens"] == before
        await served.resume()
        for got in await asyncio.gather(*running, late):
            assert len(got.ids) in {80, 12} and got.finish is FinishReason.LENGTH

    async def test_a_swap_while_paused_is_refused(self, served: Engine) -> None:
        version = served.version
        await served.pause()
        with pytest.raises(LoadRefusedError, match="is paused, resume it first"):
            await served.swap(version + 1, model(version + 1).state_dict())
        await served.resume()
        assert served.version == version
        asked = request(3)
        assert_exact(asked, await served.generate(asked))

    @pytest.mark.parametrize("damage", ["shape", "missing", "unknown", "nan"])
    async def test_weights_that_do_not_fit_are_refused_whole(self, served: Engine, damage: str) -> None:
        version = served.version
        tensors = {name: tensor.clone() for name, tensor in model(version + 1).state_dict().items()}
        if damage == "shape":
            tensors["model.norm.weight"] = torch.ones(3)
        elif damage == "missing":
            del tensors["model.norm.weight"]
        elif damage == "unknown":
            tensors["model.extra"] = torch.ones(3)
        else:
            tensors["model.norm.weight"][0] = torch.nan
        with pytest.raises(LoadRefusedError, match=f"version {version + 1} was refused"):
            await served.swap(version + 1, tensors)
        assert served.version == version
        asked = request(3)
        assert_exact(asked, await served.generate(asked))

    async def test_swaps_under_live_traffic(self, served: Engine) -> None:
        """No request fails, every token names its version, and completions of one version are exact."""
        first, done = served.version, list[tuple[GenerateRequest, Completion]]()
        failed, swaps = served.stats()["failed"], served.stats()["swaps"]
        stop = asyncio.Event()

        async def client(number: int) -> None:
            sent = 0
            while not stop.is_set():
                asked = request(number * 1000 + sent, length=5 + number, max_tokens=(3, 12, 40)[sent % 3])
                done.append((asked, await served.generate(asked)))
                sent += 1

        async def more(completions: int) -> None:
            enough = len(done) + completions
            while len(done) < enough:
                await asyncio.sleep(0.001)

        clients = [asyncio.create_task(client(number)) for number in range(8)]
        for version in range(first + 1, first + 1 + SWAPS):
            await more(5)
            await served.swap(version, model(version).state_dict())
        await more(9)
        stop.set()
        await asyncio.gather(*clients)
        assert served.version == first + SWAPS
        assert served.stats()["failed"] == failed and served.stats()["swaps"] == swaps + SWAPS
        assert any(len(set(got.versions)) > 1 for _, got in done)
        for asked, got in done:
            assert len(got.ids) == asked.max_tokens
            assert list(got.versions) == sorted(got.versions)
            if len(set(got.versions)) == 1:
                assert_exact(asked, got)
        assert {version for _, got in done for version in got.versions} >= {first, first + SWAPS}
