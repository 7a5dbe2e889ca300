import pytest
import torch

from ostinato.model.decoder import Decoder
from ostinato.train.optimizer import adamw, set_rate, steps_taken


def rates(optimizer: torch.optim.Optimizer) -> list[float]:
    return [group["lr"] for group in optimizer.param_groups]


def test_the_embedding_of_a_fresh_decoder_learns_as_much_faster_as_it_is_larger(decoder: Decoder) -> None:
    decoder.initialise()
    embedding, others = rates(adamw(decoder, rate=1e-3))
    assert others == 1e-3 and embedding == pytest.approx(12e-3)


def test_an_ordinary_model_has_one_rate(decoder: Decoder) -> None:
    with torch.no_grad():
        decoder.norm.weight.fill_(1.3)
    assert rates(adamw(decoder, rate=1e-3)) == [1e-3, 1e-3]


def test_setting_the_rate_keeps_the_proportion(decoder: Decoder) -> None:
    optimizer = adamw(decoder, rate=1e-3)
    before = rates(optimizer)
    set_rate(optimizer, 5e-4)
    assert rates(optimizer) == pytest.approx([rate / 2 for rate in before])


def test_every_weight_is_in_one_group(decoder: Decoder) -> None:
    grouped = [p for group in adamw(decoder, rate=1e-3).param_groups for p in group["params"]]
    assert sorted(map(id, grouped)) == sorted(map(id, decoder.parameters()))


def test_steps_are_counted_with_the_moments(decoder: Decoder) -> None:
    optimizer = adamw(decoder, rate=1e-3)
    assert steps_taken(optimizer) == 0
    for expected in (1, 2):
        decoder(torch.tensor([[1, 2, 3]]))[0].sum().backward()
        optimizer.step()
        assert steps_taken(optimizer) == expected
    optimizer.state.clear()
    assert steps_taken(optimizer) == 0
