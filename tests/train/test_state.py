from pathlib import Path

import pytest
import torch

from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.train.optimizer import AdamW, adamw
from ostinato.train.state import StateError, States


def stepped(decoder: Decoder, steps: int, optimizer: AdamW) -> None:
    for step in range(steps):
        torch.manual_seed(step)
        optimizer.zero_grad()
        decoder(torch.randint(0, 40, (2, 6)))[0].square().mean().backward()
        optimizer.step()


def test_a_restored_trainer_goes_on_bit_for_bit(decoder: Decoder, tmp_path: Path) -> None:
    states, optimizer = States(tmp_path), adamw(decoder, rate=1e-3)
    stepped(decoder, 3, optimizer)
    states.save(3, decoder, optimizer, {"batch": ["g"]})
    restored = Decoder(decoder.config)
    other = adamw(restored, rate=1e-3)
    assert states.load(3, restored, other) == {"batch": ["g"]}
    stepped(decoder, 2, optimizer)
    stepped(restored, 2, other)
    for a, b in zip(decoder.parameters(), restored.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_two_newest_are_kept(decoder: Decoder, tmp_path: Path) -> None:
    states, optimizer = States(tmp_path), adamw(decoder, rate=1e-3)
    for number in (1, 2, 3):
        states.save(number, decoder, optimizer, {})
    kept = [number for number in (1, 2, 3) if states.load(number, decoder, optimizer) is not None]
    assert kept == [2, 3] and states.newest() == 3


def test_a_step_that_is_done_again_replaces_the_first(decoder: Decoder, tmp_path: Path) -> None:
    states, optimizer = States(tmp_path), adamw(decoder, rate=1e-3)
    for attempt in (1, 2):
        states.save(5, decoder, optimizer, {"attempt": attempt})
    assert states.load(5, decoder, optimizer) == {"attempt": 2}


def test_without_a_state_there_is_none(decoder: Decoder, tmp_path: Path) -> None:
    states = States(tmp_path)
    assert states.newest() is None and states.load(1, decoder, adamw(decoder, rate=1e-3)) is None


def test_a_run_without_a_step_leaves_no_moments_to_begin_with(decoder: Decoder, tmp_path: Path) -> None:
    states, optimizer = States(tmp_path), adamw(decoder, rate=1e-3)
    states.save(1, decoder, optimizer, {})
    assert states.inherit(decoder, optimizer) is None and not optimizer.state


@pytest.mark.parametrize("damage", ["cut", "other model"])
def test_a_state_that_does_not_fit_is_named(decoder: Decoder, tmp_path: Path, damage: str) -> None:
    states = States(tmp_path)
    states.save(1, decoder, adamw(decoder, rate=1e-3), {})
    (path,) = tmp_path.glob("*.safetensors")
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:100])
    else:
        decoder = Decoder(ModelConfig(vocab_size=41, hidden_size=24, layers=2))
    with pytest.raises(StateError, match=path.name):
        states.load(1, decoder, adamw(decoder, rate=1e-3))
