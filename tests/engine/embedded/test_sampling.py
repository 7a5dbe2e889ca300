"""Sampling follows the distribution of the logits, and each request only its own seed."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch
from fuzz.sampling import distribution
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.toolbox import FORWARDS, decoder, request

from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.embedded.sampling import sample
from ostinato.engine.embedded.slots import SETTINGS
from ostinato.types import Distribution, Sampling

LOGITS = st.lists(st.floats(-20, 20, width=32) | st.just(-torch.inf), min_size=2, max_size=8).filter(
    lambda row: max(row) > -torch.inf
)
EDGE = 1 - 2**-24
SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    top_p=st.sampled_from([1e-9, 0.3, 0.9, 1.0]),
    top_k=st.sampled_from([0, 1, 5, 1000]),
    min_p=st.sampled_from([0.0, 0.05, 1.0]),
    presence_penalty=st.sampled_from([0.0, -1.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, -0.5, 0.4]),
    repetition_penalty=st.sampled_from([1.0, 0.8, 1.3]),
    seed=st.integers(0, 99),
)


def rows(temperature: float, count: int = 1) -> np.ndarray:
    """Return the settings of so many slots that ask for this temperature alone."""
    return np.array([(temperature, 1, 0, 0, 0, 0, 1)] * count, SETTINGS)


@given(LOGITS, st.floats(0, EDGE), st.floats(0.1, 3))
def test_a_token_of_probability_zero_is_never_drawn(
    row: list[float], uniform: float, temperature: float
) -> None:
    logits = torch.tensor([row])
    tokens, logprobs = sample(logits, rows(temperature), torch.tensor([uniform]))
    expected = torch.log_softmax(logits / temperature, -1)[0, tokens[0]]
    assert logprobs[0] == expected and expected > -torch.inf


@given(LOGITS, st.floats(0, EDGE))
def test_temperature_zero_takes_the_likeliest(row: list[float], uniform: float) -> None:
    tokens, logprobs = sample(torch.tensor([row]), rows(0.0), torch.tensor([uniform]))
    assert row[int(tokens[0])] == max(row)
    assert torch.isclose(logprobs[0], torch.log_softmax(torch.tensor(row), 0)[tokens[0]])


def test_uniform_numbers_cut_the_distribution_in_order() -> None:
    logits = torch.tensor([[0.25, 0.5, 0.25]]).log().repeat(4, 1)
    uniform = torch.tensor([0.0, 0.26, 0.74, 0.76])
    assert sample(logits, rows(1.0, 4), uniform)[0].tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize("forward", FORWARDS)
@given(st.lists(SAMPLINGS, min_size=1, max_size=5))
def test_every_token_is_drawn_from_what_its_settings_leave(forward: type, samplings: list[Sampling]) -> None:
    """The log-probability of each token is the one by definition, and the greedy token the likeliest."""
    model = decoder()
    asked = [request(i, sampling=sampling) for i, sampling in enumerate(samplings)]

    async def sampled() -> list[object]:
        engine = EmbeddedEngine(model, version=1, slots=3, max_len=128, forward=forward)
        return await asyncio.gather(*map(engine.generate, asked))

    for sent, got in zip(asked, asyncio.run(sampled()), strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([sent.prompt_ids + got.ids]))[0][0].double().numpy()
        start = len(sent.prompt_ids) - 1
        for at, (token, logprob) in enumerate(zip(got.ids, got.logprobs, strict=True)):
            expected = distribution(logits[start + at], sent.prompt_ids, got.ids[:at], sent.sampling)
            assert abs(np.log(expected[token]) - logprob) < 1e-3
            assert sent.sampling.temperature or expected[token] > expected.max() - 1e-4
        bent = Distribution.PROCESSED if sent.sampling.bent else sent.sampling.drawn_from
        assert got.distribution is bent


@given(st.lists(st.floats(-4, 4, width=16), min_size=2, max_size=9), SAMPLINGS)
def test_of_equal_tokens_all_stay_or_none(row: list[float], sampling: Sampling) -> None:
    """Ties are what a cut by rank would break by the number of the token."""
    plain = replace(sampling, presence_penalty=0.0, frequency_penalty=0.0, repetition_penalty=1.0)
    settings = np.array([tuple(getattr(plain, name) for name in SETTINGS.names or ())], SETTINGS)
    expected = distribution(np.array(row), (), (), plain)
    for uniform in (0.0, 0.3, 0.8, EDGE):
        tokens, logprobs = sample(torch.tensor([row]), settings, torch.tensor([uniform]))
        assert abs(logprobs[0] - np.log(expected[tokens[0]])) < 1e-4
