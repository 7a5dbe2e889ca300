"""The embedded engine on real weights; the shape of a model that people use, against transformers.

`OSTINATO_SMOLLM2` names a directory with SmolLM2-135M-Instruct, as `ostinato weights import` makes it.
"""

import asyncio
import os
from pathlib import Path

import pytest
import torch
from tests.engine.toolbox import NEEDS_KERNEL, request
from transformers import AutoModelForCausalLM, AutoTokenizer

from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.embedded.forward import TorchForward
from ostinato.engine.embedded.native import NativeForward
from ostinato.model.checkpoint import load_config, load_decoder, load_meta

pytestmark = [pytest.mark.real, NEEDS_KERNEL]
QUESTIONS = [
    "Write a Python function that adds two numbers.",
    "What is the capital of France?",
    "Explain in one sentence what a compiler does, to a child of ten years.",
]
TOKENS = 40


@pytest.fixture(scope="module")
def directory() -> Path:
    place = os.environ.get("OSTINATO_SMOLLM2")
    if not place:
        pytest.skip("OSTINATO_SMOLLM2 names no checkpoint: make one with `ostinato weights import`")
    return Path(place)


@pytest.mark.parametrize("forward", [NativeForward, TorchForward])
def test_greedy_tokens_are_those_of_transformers(forward: type, directory: Path) -> None:
    theirs = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    words = AutoTokenizer.from_pretrained(directory)
    prompts = [
        words.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)[
            "input_ids"
        ]
        for text in QUESTIONS
    ]
    decoder = load_decoder(directory, load_config(directory), load_meta(directory))

    async def sampled() -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
        engine = EmbeddedEngine(decoder, version=0, slots=4, max_len=256, forward=forward)
        asked = [
            request(i, prompt_ids=tuple(ids), temperature=0.0, max_tokens=TOKENS)
            for i, ids in enumerate(prompts)
        ]
        done = await asyncio.gather(*map(engine.generate, asked))
        await engine.aclose()
        return [(each.ids, each.logprobs) for each in done]

    for ids, (got, logprobs) in zip(prompts, asyncio.run(sampled()), strict=True):
        with torch.no_grad():
            row = torch.tensor([[*ids, *got]])
            expected = torch.log_softmax(theirs(row).logits[0, len(ids) - 1 : -1], -1)
        assert expected.argmax(-1).tolist() == list(got)
        reported = expected.gather(-1, torch.tensor(got)[:, None])[:, 0]
        assert (reported - torch.tensor(logprobs)).abs().max() < 1e-4
