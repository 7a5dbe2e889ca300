from pathlib import Path

import pytest
import torch
from tests.model.toolbox import tokenizer

from ostinato.model.checkpoint import load
from ostinato.model.config import ModelConfig
from ostinato.model.create import create
from ostinato.model.tensor_files import CheckpointError


def test_the_same_seed_creates_the_same_model(tmp_path: Path) -> None:
    config = ModelConfig(vocab_size=tokenizer().vocab_size, hidden_size=32, layers=1)
    decoders = []
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        tokenizer().save(tmp_path / name)
        create(tmp_path / name, config, seed, harness="9f")
        decoder, _, meta = load(tmp_path / name)
        assert (meta.version, meta.parent, meta.harness) == (0, None, "9f")
        decoders.append(decoder.state_dict()["model.embed_tokens.weight"])
    one, again, other = decoders
    assert torch.equal(one, again) and not torch.equal(one, other)


def test_a_vocabulary_smaller_than_the_tokenizer_is_found_on_loading(tmp_path: Path) -> None:
    tokenizer().save(tmp_path)
    create(tmp_path, ModelConfig(vocab_size=10, hidden_size=32, layers=1), 0)
    with pytest.raises(CheckpointError, match="do not belong to one checkpoint"):
        load(tmp_path)
