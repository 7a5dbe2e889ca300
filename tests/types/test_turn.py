import pytest

from ostinato.types import Completion, FinishReason, Sampling


@pytest.mark.parametrize("temperature", [-0.1, float("nan"), float("inf")])
def test_a_temperature_is_a_number_of_at_least_zero(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature"):
        Sampling(temperature=temperature)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("top_k", -1),
        ("min_p", 2.0),
        ("presence_penalty", -2.5),
        ("frequency_penalty", float("nan")),
        ("repetition_penalty", 0.0),
    ],
)
def test_a_setting_outside_its_range_is_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name} is "):
        Sampling(**{name: value})


def test_routes_are_two_bytes_each() -> None:
    with pytest.raises(ValueError, match="two bytes each"):
        Completion(ids=(1,), logprobs=(-0.1,), versions=(1,), finish=FinishReason.STOP, routes=b"abc")
