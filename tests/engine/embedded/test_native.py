"""The kernel agrees with the decoder that it stands for, over shapes that fit no vector register."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.toolbox import NEEDS_KERNEL, decoder, fresh, request

from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.embedded.native import NativeForward
from ostinato.model.decoder import Decoder
from ostinato.types import Completion, GenerateRequest

pytestmark = NEEDS_KERNEL


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, Any]:
    kv, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    experts = draw(st.sampled_from([0, 0, 1, 3, 7]))
    qk_norm = bool(experts) or draw(st.booleans())
    return {
        "qk_norm": qk_norm,
        "attention_bias": not qk_norm and draw(st.booleans()),
        "vocab_size": draw(st.integers(64, 150)),
        "hidden_size": draw(st.integers(3, 70)),
        "layers": draw(st.integers(1, 3)),
        "heads": kv * group,
        "kv_heads": kv,
        "head_dim": 2 * draw(st.integers(1, 20)),
        "intermediate_size": draw(st.integers(1, 70)),
        "experts": experts,
        "experts_per_token": draw(st.integers(1, max(experts, 1))),
        "expert_size": draw(st.integers(1, 40)),
        "shared_expert_size": draw(st.sampled_from([0, 17])) if experts else 0,
        "norm_topk": draw(st.booleans()),
        "tied": draw(st.booleans()),
    }


async def sampled(model: Decoder, asked: list[GenerateRequest], slots: int = 4) -> list[Completion]:
    engine = EmbeddedEngine(model, version=1, slots=slots, max_len=128, forward=NativeForward)
    return list(await asyncio.gather(*map(engine.generate, asked)))


@given(shapes(), st.integers(1, 90))
def test_any_shape_is_the_decoder(shape: dict[str, Any], length: int) -> None:
    model = decoder(3, **shape)
    asked = [request(i, length=length + i, max_tokens=9, temperature=(1.0, 0.0, 0.7)[i]) for i in range(3)]
    for sent, got in zip(asked, asyncio.run(sampled(model, asked)), strict=True):
        logprobs, routes = fresh(model, sent, got)
        assert (logprobs - torch.tensor(got.logprobs)).abs().max() < 1e-4
        assert got.routes == (None if routes is None else routes.numpy().tobytes())


@pytest.mark.parametrize("experts", [0, 4])
async def test_a_row_does_not_depend_on_its_batch_to_the_bit(experts: int) -> None:
    """A row is computed alone, among others, in pieces of other sizes, and on a reused prefix."""
    model = decoder(experts=experts)
    asked = [request(i, length=7 * i + 3, max_tokens=20) for i in range(14)]
    alone = [(await sampled(model, [one], slots=1))[0] for one in asked]
    assert await sampled(model, asked, slots=14) == alone
    engine = EmbeddedEngine(model, version=1, slots=9, max_len=128, forward=NativeForward)
    for one, expected in zip(asked, alone, strict=True):
        for known in (1, len(one.prompt_ids) // 2):
            await engine.generate(request(99, prompt_ids=one.prompt_ids[: max(known, 1)], max_tokens=1))
        assert await engine.generate(one) == expected


async def test_extreme_temperatures_and_the_last_uniform_number() -> None:
    model = decoder()
    asked = [request(i, temperature=t) for i, t in enumerate([1e-6, 1e-3, 50.0, 1e6])]
    for sent, got in zip(asked, await sampled(model, asked), strict=True):
        logprobs, _ = fresh(model, sent, got)
        expected = torch.tensor(got.logprobs)
        assert torch.isfinite(expected).all()
        assert (logprobs - expected).abs().max() < 1e-4 * max(1, 1 / sent.sampling.temperature)


TEAM = """
import asyncio
from tests.engine.toolbox import decoder, request
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.embedded.native import NativeForward

model = decoder(hidden_size=128, head_dim=32, intermediate_size=512, max_positions=300)
async def sampled():
    engine = EmbeddedEngine(model, version=1, slots=4, max_len=300, forward=NativeForward)
    asked = [request(i, length=250 - i, max_tokens=20) for i in range(4)]
    return await asyncio.gather(*map(engine.generate, asked))
print([(done.ids, done.logprobs) for done in asyncio.run(sampled())])
"""


def test_the_number_of_threads_changes_no_bit() -> None:
    """The products and the attention of this model are large enough for a team of threads."""
    printed = []
    for threads in ("1", "3"):
        command = [sys.executable, "-c", TEAM]
        env = os.environ | {"OMP_NUM_THREADS": threads, "PYTHONPATH": str(Path(__file__).parents[3])}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        printed.append(done.stdout)
    assert printed[0] == printed[1] != ""
