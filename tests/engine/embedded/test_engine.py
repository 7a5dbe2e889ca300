"""The embedded engine samples, reuses prefixes, swaps weights and survives failures.

Covers engine/embedded/engine.py, engine/embedded/forward.py and engine/embedded/slots.py.
"""

import asyncio
import random
import time
from typing import Any

import numpy as np
import pytest
import torch
from tests.engine.toolbox import FORWARDS, VOCABULARY, decoder, fresh, request

from ostinato.engine.base import EngineError
from ostinato.engine.embedded.engine import LEAST_PREFILL, PREFILL_WORK, EmbeddedEngine
from ostinato.types import Completion, GenerateRequest

SHAPES: dict[str, dict[str, Any]] = {
    "dense": {},
    "moe": {"experts": 4},
    "moe mha": {"experts": 4, "kv_heads": 4},
}


@pytest.fixture(autouse=True, params=FORWARDS)
def forward(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with both forward passes."""
    monkeypatch.setattr("ostinato.engine.embedded.engine.fastest", request.param)


def engine(slots: int = 8, max_len: int = 128, **sizes: Any) -> EmbeddedEngine:
    return EmbeddedEngine(decoder(**sizes), version=1, slots=slots, max_len=max_len)


def assert_exact(asked: GenerateRequest, got: Completion, **sizes: Any) -> None:
    logprobs, routes = fresh(decoder(**sizes), asked, got)
    assert (logprobs - torch.tensor(got.logprobs)).abs().max() < 1e-4
    if routes is not None:
        assert got.routes == routes.numpy().tobytes()


@pytest.mark.parametrize("shape", SHAPES)
async def test_logprobs_and_routes_equal_a_fresh_forward(shape: str) -> None:
    served = engine(**SHAPES[shape])
    asked = [request(i, length=3 + 7 * i, max_tokens=20, temperature=0.5 + i % 3) for i in range(14)]
    for sent, got in zip(asked, await asyncio.gather(*map(served.generate, asked)), strict=True):
        assert len(got.ids) == 20
        assert set(got.versions) == {1}
        assert_exact(sent, got, **SHAPES[shape])


async def test_routes_hold_experts_beyond_one_byte() -> None:
    sizes = {"experts": 300, "experts_per_token": 2, "expert_size": 2}
    served, asked = engine(**sizes), request(1, length=60)
    got = await served.generate(asked)
    assert_exact(asked, got, **sizes)
    assert got.routes is not None
    chosen = np.frombuffer(got.routes, "<u2").reshape(60 + 12 - 1, -1, 2)
    assert 256 <= chosen.max() < 300


async def test_tokens_do_not_depend_on_batch_mates() -> None:
    asked = [request(i, length=5 + i) for i in range(12)]
    together = await asyncio.gather(*map(engine().generate, asked))
    lonely = engine()
    assert [(await lonely.generate(one)).ids for one in asked] == [got.ids for got in together]


async def test_the_seed_decides() -> None:
    served = engine()
    one, again, other = [await served.generate(request(1, seed=seed, max_tokens=30)) for seed in (5, 5, 6)]
    assert one.ids == again.ids != other.ids


async def test_sampling_follows_the_distribution() -> None:
    served = engine(slots=64)
    asked = [request(1, seed=seed, max_tokens=1) for seed in range(3000)]
    drawn = [got.ids[0] for got in await asyncio.gather(*map(served.generate, asked))]
    with torch.no_grad():
        expected = torch.softmax(decoder()(torch.tensor([asked[0].prompt_ids]))[0][0, -1], -1)
    counted = torch.bincount(torch.tensor(drawn), minlength=VOCABULARY) / len(drawn)
    assert (counted - expected).abs().max() < 4 * (0.25 / len(drawn)) ** 0.5


async def test_a_continued_session_computes_only_what_is_new() -> None:
    served = engine(experts=4)
    asked = request(1, length=40)
    for turn in range(4):
        got = await served.generate(asked)
        before = served.stats()
        asked = request(turn + 2, prompt_ids=asked.prompt_ids + got.ids + (turn, 9, 8))
        got = await served.generate(asked)
        after = served.stats()
        # All but the last sampled token and the three new ones were known.
        assert after["reused_tokens"] - before["reused_tokens"] == len(asked.prompt_ids) - 4
        assert_exact(asked, got, experts=4)


async def test_requests_with_one_prompt_share_its_keys() -> None:
    served = engine(slots=4, experts=4)
    first = request(1, length=30)
    await served.generate(first)
    asked = [request(seed, prompt_ids=first.prompt_ids) for seed in range(12)]
    for sent, got in zip(asked, await asyncio.gather(*map(served.generate, asked)), strict=True):
        assert_exact(sent, got, experts=4)
    assert served.stats()["reused_tokens"] >= 11 * 29


async def test_logprobs_after_a_swap_are_those_of_the_new_weights() -> None:
    served = engine(experts=4)
    asked = request(1, length=40)
    mixed = asyncio.create_task(served.generate(request(1, length=40, max_tokens=60)))
    await served.generate(asked)
    new = decoder(9, experts=4)
    await served.swap(2, new.state_dict())
    old_tokens = (await mixed).ids
    for prompt in (asked.prompt_ids, asked.prompt_ids + old_tokens[:50]):
        again = request(2, prompt_ids=prompt)
        got = await served.generate(again)
        logprobs, _ = fresh(new, again, got)
        assert (logprobs - torch.tensor(got.logprobs)).abs().max() < 1e-4
        assert set(got.versions) == {2}


async def test_the_first_token_after_a_swap_comes_from_the_new_weights() -> None:
    """Old keys are read by new weights, and the recorded version is that of the new weights."""
    served = engine(slots=1)
    sent = [request(i, max_tokens=100) for i in range(20)]
    tasks = [asyncio.create_task(served.generate(one)) for one in sent]
    while served.stats()["tokens"] < 7:
        await asyncio.sleep(0)
    await served.swap(2, decoder(3).state_dict())
    taken = int(served.stats()["tokens"])
    done = await asyncio.gather(*tasks)
    assert 7 <= taken < 2000
    assert [version for got in done for version in got.versions] == [1] * taken + [2] * (2000 - taken)


async def test_cancelling_frees_the_slot() -> None:
    served = engine(slots=1)
    waiting = [asyncio.create_task(served.generate(request(i, max_tokens=100))) for i in range(3)]
    for _ in range(5):
        await asyncio.sleep(0)
    waiting[0].cancel()
    waiting[1].cancel()
    assert len((await waiting[2]).ids) == 100
    assert served.stats()["running"] == served.stats()["waiting"] == 0


async def test_closing_a_stream_frees_the_slot() -> None:
    served = engine(slots=1)
    events = served.stream(request(1, max_tokens=100))
    await anext(events)
    await events.aclose()
    assert served.stats()["running"] == 0
    assert len((await served.generate(request(2))).ids) == 12


async def test_closing_fails_waiting_requests() -> None:
    served = engine()
    task = asyncio.create_task(served.generate(request(1, max_tokens=100)))
    await asyncio.sleep(0)
    await served.aclose()
    with pytest.raises(EngineError, match="closed"):
        await task


def test_more_context_than_positions_is_refused() -> None:
    with pytest.raises(EngineError, match=r"--context .* 128 positions: give at most 128"):
        engine(max_len=129)


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let prompts be computed in parts of at most so many tokens."""
    monkeypatch.setattr("ostinato.engine.embedded.engine.PREFILL_WORK", 0)
    return LEAST_PREFILL


@pytest.mark.parametrize("shape", SHAPES)
async def test_long_prompts_in_parts_give_what_whole_ones_give(
    shape: str, forward: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = [LEAST_PREFILL + more for more in (-1, 0, 1, 2)] + [LEAST_PREFILL * 3 + 1, 110, 1]
    asked = [request(i, length=length, max_tokens=9) for i, length in enumerate(lengths)]
    whole = await asyncio.gather(*map(engine(**SHAPES[shape]).generate, asked))
    monkeypatch.setattr("ostinato.engine.embedded.engine.PREFILL_WORK", 0)
    parts = await asyncio.gather(*map(engine(**SHAPES[shape]).generate, asked))
    assert [got.ids for got in parts] == [got.ids for got in whole]
    assert [got.routes for got in parts] == [got.routes for got in whole]
    for sent, got in zip(asked, parts, strict=True):
        assert_exact(sent, got, **SHAPES[shape])


async def test_others_go_on_while_a_long_prompt_is_computed(in_parts: int) -> None:
    served, order = engine(), list[str]()

    async def follow(name: str, asked: GenerateRequest) -> None:
        async for _ in served.stream(asked):
            order.append(name)

    first = asyncio.create_task(follow("short", request(1, length=4, max_tokens=30)))
    while not order:
        await asyncio.sleep(0)
    long = request(2, length=3 * in_parts + 4, max_tokens=2)
    await asyncio.gather(first, follow("long", long), follow("third", request(3, length=5, max_tokens=1)))
    assert order[: order.index("long")].count("short") >= 4
    assert order.index("long") < order.index("third")


async def test_the_loop_turns_many_times_between_two_long_steps(
    forward: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an HTTP request needs to be answered while prompts are computed for seconds at a time."""
    served, turned = engine(), [0]
    monkeypatch.setattr("ostinato.engine.embedded.engine.LONG_STEP_S", 0.0)
    monkeypatch.setattr("ostinato.engine.embedded.engine.BREATH", 1.0)
    monkeypatch.setattr(served, "_step", lambda: (time.sleep(0.05), step())[1])  # a large model's
    step = EmbeddedEngine._step.__get__(served)

    async def other() -> None:
        while True:
            turned[0] += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await served.generate(request(1, max_tokens=2))
    task.cancel()
    assert turned[0] >= 20


async def test_weights_that_change_within_a_prompt_leave_keys_that_nobody_reuses(in_parts: int) -> None:
    served = engine(slots=1, max_len=2048, max_positions=2048)
    asked = request(1, length=60 * in_parts, max_tokens=3)
    task = asyncio.create_task(served.generate(asked))
    while not served.stats()["steps"]:
        await asyncio.sleep(0)
    await served.swap(2, decoder(1, max_positions=2048).state_dict())
    assert set((await task).versions) == {2}
    got = await served.generate(asked)
    assert served.stats()["reused_tokens"] == 0
    logprobs, _ = fresh(decoder(1, max_positions=2048), asked, got)
    assert (logprobs - torch.tensor(got.logprobs)).abs().max() < 1e-4


async def test_a_caller_who_leaves_within_the_prompt_frees_the_slot(in_parts: int) -> None:
    served = engine(slots=1)
    task = asyncio.create_task(served.generate(request(1, length=3 * in_parts)))
    while not served.stats()["steps"]:
        await asyncio.sleep(0)
    task.cancel()
    assert_exact(request(2), await served.generate(request(2)))
    assert served.stats()["running"] == 0


@pytest.mark.parametrize("work", [0, PREFILL_WORK])
async def test_a_long_mixed_life_stays_exact(
    work: int, forward: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions that grow, die and share prefixes on few slots: every logprob still equals a forward."""
    monkeypatch.setattr("ostinato.engine.embedded.engine.PREFILL_WORK", work)
    served, rng = engine(slots=5, experts=4), random.Random(0)
    histories: list[tuple[int, ...]] = [request(i, length=6 + 12 * i).prompt_ids for i in range(4)]

    async def session(seed: int) -> None:
        ids = rng.choice(histories)
        for turn in range(3):
            asked = request(seed * 10 + turn, prompt_ids=ids, max_tokens=rng.randint(1, 9))
            got = await served.generate(asked)
            assert_exact(asked, got, experts=4)
            ids = asked.prompt_ids + got.ids + (rng.randrange(VOCABULARY),)
            histories.append(ids)

    await asyncio.gather(*(session(seed) for seed in range(25)))
    assert served.stats()["failed"] == 0
