"""Small models and requests for the tests of the engines."""

import random
from dataclasses import fields
from typing import Any

import pytest
import torch

from ostinato.engine.embedded.forward import TorchForward
from ostinato.engine.embedded.kernel import KernelError, library
from ostinato.engine.embedded.native import NativeForward
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.types import Completion, GenerateRequest, Sampling

VOCABULARY = 64
SETTINGS = {each.name for each in fields(Sampling)}


def without_kernel() -> str:
    """Return the reason why the kernel cannot be used here; empty when it can."""
    try:
        library()
    except KernelError as error:
        return str(error)
    return ""


NEEDS_KERNEL = pytest.mark.skipif(bool(without_kernel()), reason=without_kernel())
FORWARDS = [pytest.param(NativeForward, marks=NEEDS_KERNEL), TorchForward]


def decoder(seed: int = 0, **sizes: Any) -> Decoder:
    """A random tiny decoder whose distribution is not flat."""
    torch.manual_seed(seed)
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "layers": 2,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 8,
    }
    shape |= {"max_positions": 128, "intermediate_size": 48, "expert_size": 16}
    made = Decoder(ModelConfig(**(shape | sizes)))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return made


def request(number: int, *, length: int = 10, max_tokens: int = 12, **more: Any) -> GenerateRequest:
    rng = random.Random(number)
    prompt = tuple(rng.randrange(VOCABULARY) for _ in range(length))
    settings = {name: more.pop(name) for name in SETTINGS & more.keys()}
    sampling = Sampling(**({"seed": number} | settings))
    known = {"prompt_ids": prompt, "stop_ids": (), "max_tokens": max_tokens, "sampling": sampling}
    return GenerateRequest(request_id=f"r{number}", session_id=f"s{number}", **(known | more))


def fresh(
    model: Decoder, asked: GenerateRequest, got: Completion
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the logprobs of the completion's tokens, and the routes, by one forward pass without a cache."""
    ids = torch.tensor([asked.prompt_ids + got.ids])
    with torch.no_grad():
        logits, routes = model(ids)
    start = len(asked.prompt_ids)
    scale = asked.sampling.temperature or 1.0
    logprobs = torch.log_softmax(logits[0, start - 1 : -1] / scale, -1)
    return logprobs.gather(1, torch.tensor(got.ids)[:, None])[:, 0], None if routes is None else routes[
        0, :-1
    ]
