import pytest

from ostinato.types import Completion, FinishReason, Sampling


@pytest.mark.parametrize("temperature", [-0.1, float("nan"), float("inf")])
def test_a_temperature_is_a_number_of_at_least_zero(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature"):
        Sampling(temperature=temperature)


def test_routes_are_two_bytes_each() -> None:
    with pytest.raises(ValueError, match="two bytes each"):
        Completion(ids=(1,), logprobs=(-0.1,), versions=(1,), finish=FinishReason.STOP, routes=b"abc")
