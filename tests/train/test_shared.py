"""A prompt that rows share changes neither log-probabilities nor gradients, and is found for what it is."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.train.batch import counted_logprobs, padded
from ostinato.train.losses import token_logprobs
from ostinato.train.shared import WORTH, packed_hidden, prompt_length

VOCABULARY = 40
ROWS = st.lists(
    st.tuples(st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=12), st.integers(0, 2**12)),
    min_size=2,
    max_size=5,
)


def grouped() -> Decoder:
    torch.manual_seed(1)
    shape = {"hidden_size": 16, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 8}
    decoder = Decoder(ModelConfig(vocab_size=VOCABULARY, intermediate_size=32, **shape))
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return decoder


def batch(rows: list[tuple[list[int], int]], prompt: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and what is counted; the bits of a row's number say which of its own tokens count."""
    ids = [[7] * prompt + own for own, _ in rows]
    counted = [[False] * prompt + [bool(bits >> i & 1) for i in range(len(own))] for own, bits in rows]
    return padded(ids, torch.long), padded(counted, torch.bool)


@settings(max_examples=40, deadline=None)
@given(rows=ROWS, prompt=st.integers(2, 9))
def test_log_probabilities_and_gradients_are_those_of_padded_rows(
    rows: list[tuple[list[int], int]], prompt: int
) -> None:
    ids, counted = batch(rows, prompt)
    length = prompt_length(ids, counted)
    if not counted.any():
        return
    results = []
    for shared in (False, True):
        decoder = grouped()
        if shared:
            hidden = packed_hidden(decoder, ids, counted, length)
        else:
            hidden = decoder.hidden(ids[:, :-1])[0][counted[:, 1:]]
        logprobs = token_logprobs(decoder.head(hidden), ids[:, 1:][counted[:, 1:]])
        logprobs.sum().backward()
        results.append((logprobs.detach(), [parameter.grad for parameter in decoder.parameters()]))
    (padded_logprobs, padded_gradients), (packed_logprobs, packed_gradients) = results
    torch.testing.assert_close(packed_logprobs, padded_logprobs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(packed_gradients, padded_gradients, atol=1e-4, rtol=1e-4)


def test_the_prompt_ends_where_rows_differ_or_something_counts() -> None:
    ids = torch.tensor([[1, 2, 3, 4, 5], [1, 2, 3, 9, 5]])
    nothing, late = torch.zeros(2, 5, dtype=torch.bool), torch.zeros(2, 5, dtype=torch.bool)
    late[1, 2] = True
    assert prompt_length(ids, nothing) == 3
    assert prompt_length(ids, late) == 1, "token 2 is predicted by token 1, which belongs to its row"


@pytest.mark.parametrize("prompt", [WORTH - 1, WORTH + 5])
def test_a_batch_gives_the_same_however_long_its_prompt(prompt: int) -> None:
    ids, counted = batch([([3, 4, 5], 0b110), ([8, 9], 0b10), ([1, 2, 3, 4], 0)], prompt)
    decoder = grouped()
    hidden = decoder.hidden(ids[:, :-1])[0][counted[:, 1:]]
    plain = token_logprobs(decoder.head(hidden), ids[:, 1:][counted[:, 1:]])
    torch.testing.assert_close(counted_logprobs(decoder, ids, counted), plain, atol=1e-5, rtol=1e-5)
