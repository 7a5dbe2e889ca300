"""Sampling follows the distribution of the logits, and each request only its own seed."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.engine.embedded.sampling import sample

LOGITS = st.lists(st.floats(-20, 20, width=32) | st.just(-torch.inf), min_size=2, max_size=8).filter(
    lambda row: max(row) > -torch.inf
)
EDGE = 1 - 2**-24


@given(LOGITS, st.floats(0, EDGE), st.floats(0.1, 3))
def test_a_token_of_probability_zero_is_never_drawn(
    row: list[float], uniform: float, temperature: float
) -> None:
    logits = torch.tensor([row])
    tokens, logprobs = sample(logits, torch.tensor([temperature]), torch.tensor([uniform]))
    expected = torch.log_softmax(logits / temperature, -1)[0, tokens[0]]
    assert logprobs[0] == expected and expected > -torch.inf


@given(LOGITS, st.floats(0, EDGE))
def test_temperature_zero_takes_the_likeliest(row: list[float], uniform: float) -> None:
    tokens, logprobs = sample(torch.tensor([row]), torch.tensor([0.0]), torch.tensor([uniform]))
    assert row[int(tokens[0])] == max(row)
    assert torch.isclose(logprobs[0], torch.log_softmax(torch.tensor(row), 0)[tokens[0]])


def test_uniform_numbers_cut_the_distribution_in_order() -> None:
    logits = torch.tensor([[0.25, 0.5, 0.25]]).log().repeat(4, 1)
    uniform = torch.tensor([0.0, 0.26, 0.74, 0.76])
    assert sample(logits, torch.ones(4), uniform)[0].tolist() == [0, 1, 1, 2]
