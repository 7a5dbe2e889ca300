from dataclasses import replace

import pytest

from ostinato.types import Sample

SAMPLE = Sample(
    session_id="s1",
    turns=(0,),
    ids=(1, 2, 3),
    mask=(False, True, True),
    logprobs=(0.0, -0.5, -0.25),
    versions=(0, 7, 8),
    temperatures=(1.0, 0.3, 0.3),
    advantage=0.5,
)


@pytest.mark.parametrize("name", ["ids", "mask", "logprobs", "versions", "temperatures"])
def test_a_row_has_one_entry_per_token(name: str) -> None:
    with pytest.raises(ValueError, match="session s1: a row needs one entry per token"):
        replace(SAMPLE, **{name: getattr(SAMPLE, name)[:-1]})


def test_a_row_without_a_sampled_token_is_none() -> None:
    with pytest.raises(ValueError, match="without a sampled token"):
        replace(SAMPLE, mask=(False,) * 3)


@pytest.mark.parametrize("advantage", [float("nan"), float("inf")])
def test_an_advantage_is_finite(advantage: float) -> None:
    with pytest.raises(ValueError, match="finite number"):
        replace(SAMPLE, advantage=advantage)


def test_the_versions_of_a_row_are_those_of_its_sampled_tokens() -> None:
    assert (SAMPLE.oldest_version, SAMPLE.newest_version) == (7, 8)
