"""Covers train/policy.py: the ratio of what other weights would have done: 0 for the weights themselves."""

from dataclasses import replace

import pytest
import torch

from ostinato.model.decoder import Decoder
from ostinato.train.batch import counted_scores
from ostinato.train.policy import log_ratios, scored
from ostinato.types import Sample


def sampled_by(decoder: Decoder, sample: Sample) -> Sample:
    """Return the sample with the log-probabilities that the decoder gives its tokens."""
    row = scored(sample)
    with torch.no_grad():
        scores = iter(counted_scores(decoder, [row]).logprobs_N.tolist())
    return replace(sample, logprobs=tuple(next(scores) if counted else 0.0 for counted in row.counted))


@pytest.mark.parametrize("piece_tokens", [1, 3072])
def test_a_ratio_is_that_of_all_tokens_of_a_session(decoder: Decoder, make_sample, piece_tokens: int) -> None:
    """Two segments of one session, and one of another that was sampled colder."""
    made = [
        make_sample(0, session="a"),
        make_sample(1, session="a", length=20),
        make_sample(2, temperature=0.3),
    ]
    own = [sampled_by(decoder, each) for each in made]
    assert log_ratios(decoder, own, piece_tokens=piece_tokens) == pytest.approx(
        {"a": 0.0, "s": 0.0}, abs=1e-5
    )
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    other = [sampled_by(decoder, each) for each in made]
    expected = {"a": 0.0, "s": 0.0}
    for mine, theirs in zip(own, other, strict=True):
        expected[mine.session_id] += sum(theirs.logprobs) - sum(mine.logprobs)
    assert log_ratios(decoder, own, piece_tokens=piece_tokens) == pytest.approx(expected, abs=1e-4)
    assert abs(expected["a"]) > 0.01


def test_nothing_recorded_has_no_ratio(decoder: Decoder) -> None:
    assert log_ratios(decoder, []) == {}
