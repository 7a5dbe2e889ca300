from dataclasses import replace

import pytest

from ostinato.types import Routes, Sample

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


@pytest.mark.parametrize(("data", "width"), [(bytes(6), 2), (b"", 1), (bytes(4), 0), (bytes(3), 1)])
def test_routes_hold_the_same_number_of_experts_for_every_token(data: bytes, width: int) -> None:
    with pytest.raises(ValueError, match=f"routes of {width} experts a token"):
        Routes(data=data, width=width)


def test_the_last_token_of_a_row_has_no_routes() -> None:
    assert replace(SAMPLE, routes=Routes(data=bytes(8), width=2)).routes is not None
    with pytest.raises(ValueError, match="session s1: routes of 3 tokens for a row of 3"):
        replace(SAMPLE, routes=Routes(data=bytes(12), width=2))


def test_the_versions_of_a_row_are_those_of_its_sampled_tokens() -> None:
    assert (SAMPLE.oldest_version, SAMPLE.newest_version) == (7, 8)
