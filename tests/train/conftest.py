"""A real model, small enough that a step takes milliseconds, and samples that it could have produced."""

import random
from collections.abc import Callable

import pytest
import torch

from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.types import Sample

VOCAB = 40

MakeSample = Callable[..., Sample]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def decoder() -> Decoder:
    torch.manual_seed(0)
    config = ModelConfig(
        vocab_size=VOCAB, hidden_size=16, layers=2, heads=2, kv_heads=2, head_dim=8, intermediate_size=32
    )
    decoder = Decoder(config)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return decoder


@pytest.fixture
def make_sample() -> MakeSample:
    def make(
        seed: int = 0,
        *,
        length: int = 12,
        advantage: float = 1.0,
        session: str = "s",
        version: int = 0,
        logprob: float = -1.0,
        temperature: float = 1.0,
    ) -> Sample:
        rng = random.Random(seed)
        mask = (False, False, *(rng.random() < 0.5 for _ in range(length - 3)), True)
        return Sample(
            session_id=session,
            turns=(0,),
            ids=tuple(rng.randrange(VOCAB) for _ in range(length)),
            mask=mask,
            logprobs=tuple(logprob if sampled else 0.0 for sampled in mask),
            versions=tuple(version if sampled else 0 for sampled in mask),
            temperatures=tuple(temperature if sampled else 1.0 for sampled in mask),
            advantage=advantage,
        )

    return make
