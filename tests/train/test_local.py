"""Rows are scored and differentiated alike, padded or packed behind the prompt that they share."""

import random
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.train.batch import ScoredRow, counted_scores
from ostinato.train.local import WORTH, DecoderModel

VOCABULARY = 40


def grouped() -> Decoder:
    """A decoder whose keys serve two heads each."""
    torch.manual_seed(1)
    shape = {"hidden_size": 16, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 8}
    decoder = Decoder(ModelConfig(vocab_size=VOCABULARY, intermediate_size=32, **shape))
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return decoder


def rows(count: int, prompt: int, seed: int) -> list[ScoredRow]:
    rng = random.Random(seed)
    return [
        ScoredRow(
            ids=(7,) * prompt + tuple(rng.randrange(VOCABULARY) for _ in range(length)),
            counted=(False,) * prompt + tuple(rng.random() < 0.5 for _ in range(length - 1)) + (True,),
            temperatures=(rng.choice((0.5, 1.0)),) * (prompt + length),
        )
        for length in (rng.randint(1, 12) for _ in range(count))
    ]


@given(
    st.integers(2, 6), st.sampled_from((5, WORTH - 1, WORTH + 9)), st.integers(1, 500), st.integers(0, 999)
)
def test_scores_and_gradients_are_those_of_each_row_alone(
    tmp_path_factory: pytest.TempPathFactory, count: int, prompt: int, tokens: int, seed: int
) -> None:
    model = DecoderModel(grouped(), tmp_path_factory.mktemp("run"), piece_tokens=tokens)
    batch, plain = rows(count, prompt, seed), grouped()
    expected = [counted_scores(plain, [row]).logprobs_N for row in batch]
    for scores, alone in zip(model.logprobs(batch), expected, strict=True):
        torch.testing.assert_close(scores, alone.detach(), atol=1e-5, rtol=1e-5)
    model.accumulate(batch, lambda _, scores: scores.logprobs_N.sum())
    torch.cat(expected).sum().backward()  # type: ignore[no-untyped-call]
    for ours, theirs in zip(model.decoder.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-4, rtol=1e-4)


def test_a_checkpoint_is_written_under_the_names_that_it_was_read(tmp_path: Path) -> None:
    from ostinato.model.tensor_files import TensorFiles

    model = DecoderModel(grouped(), tmp_path)
    (tmp_path / "out").mkdir()
    model.write(tmp_path / "out")
    files = TensorFiles.open(tmp_path / "out")
    for name, tensor in model.decoder.state_dict().items():
        assert torch.equal(files.tensor(name), tensor)
