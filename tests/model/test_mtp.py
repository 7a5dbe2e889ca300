"""A draft on disk: its names, and what it refuses to draft for."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.data.toolbox import encoder

from ostinato.model.checkpoint import load_config, save
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.mtp import FOLDER, Mtp, has_draft, load_draft, save_draft
from ostinato.model.tensor_files import CheckpointError, TensorFiles

OF_ITS_OWN = ("enorm", "hnorm", "eh_proj", "shared_head.norm")
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")
TABLES = ("embed_tokens", "shared_head.head")
"""The copies of the model's own tables that public checkpoints hold as well; the draft here has none."""
GLM_4_5 = [  # what vLLM's glm4_moe_mtp.py takes of layer 46, with two experts
    *(f"model.layers.46.{name}.weight" for name in (*OF_ITS_OWN, *TABLES)),
    *(f"model.layers.46.{name}_layernorm.weight" for name in ("input", "post_attention")),
    *(f"model.layers.46.self_attn.{name}.weight" for name in ATTENTION),
    "model.layers.46.mlp.gate.weight",
    *(f"model.layers.46.mlp.experts.0.{part}_proj.weight" for part in ("gate", "up", "down")),
    *(f"model.layers.46.mlp.experts.1.{part}_proj.weight" for part in ("gate", "up", "down")),
]


def shape(**sizes: Any) -> ModelConfig:
    small: dict[str, Any] = {"hidden_size": 32, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 16}
    small |= {"vocab_size": encoder().vocab_size, "intermediate_size": 48, "max_positions": 64}
    return ModelConfig(**(small | sizes))


def drafted(folder: Path, **sizes: Any) -> tuple[Decoder, Mtp]:
    """Write a checkpoint with its draft."""
    decoder = Decoder(shape(**sizes))
    meta = save(folder, decoder, encoder(), version=0)
    mtp = Mtp.beside(decoder, 1)
    save_draft(folder, mtp, trunk=meta.digest, tokenizer=encoder().digest)
    return decoder, mtp


def test_its_names_are_those_of_public_checkpoints() -> None:
    names = set(Mtp(shape(layers=46, experts=2, experts_per_token=1)).state_dict())
    assert names == {name for name in GLM_4_5 if not any(table in name for table in TABLES)}


@pytest.mark.parametrize("sizes", [{"experts": 4}, {"qk_norm": False}], ids=str)
def test_it_is_read_as_it_was_written(tmp_path: Path, sizes: dict[str, Any]) -> None:
    decoder, mtp = drafted(tmp_path, **sizes)
    read = load_draft(tmp_path, load_config(tmp_path), tokenizer=encoder().digest).state_dict()
    assert has_draft(tmp_path) and read.keys() == mtp.state_dict().keys()
    assert all(torch.equal(read[name], tensor) for name, tensor in mtp.state_dict().items())
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        states = mtp(decoder, decoder.norm(decoder.hidden(ids)[0]), ids, torch.tensor([[0, 1, 2]]))
    assert mtp.head(decoder, states).shape == (1, 3, decoder.config.vocab_size)


def test_the_draft_of_another_model_is_refused_by_name(tmp_path: Path) -> None:
    drafted(tmp_path / "one", qk_norm=False)
    config = load_config(tmp_path / "one")
    with pytest.raises(CheckpointError, match=r"ostinato_tokenizer is .*, the model's 'another'"):
        load_draft(tmp_path / "one", config, tokenizer="another")
    with pytest.raises(CheckpointError, match=r"another model: vocab_size is .*num_hidden_layers is 2, .* 3"):
        load_draft(
            tmp_path / "one", shape(vocab_size=999, layers=3, qk_norm=False), tokenizer=encoder().digest
        )
    torch.manual_seed(7)
    save(tmp_path / "one", Decoder(config), encoder(), version=1)
    with pytest.raises(CheckpointError, match="trained for other weights"):
        load_draft(tmp_path / "one", config, tokenizer=encoder().digest)


def test_a_damaged_draft_is_refused_by_name(tmp_path: Path) -> None:
    drafted(tmp_path, qk_norm=False)
    path = tmp_path / FOLDER / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b"eh_proj", b"eh_porj"))
    with pytest.raises(CheckpointError, match=r"missing .*eh_proj.*unknown .*eh_porj"):
        load_draft(tmp_path, load_config(tmp_path), tokenizer=encoder().digest)
    (tmp_path / FOLDER / "config.json").write_text(json.dumps([]))
    with pytest.raises(CheckpointError, match="not a JSON object"):
        load_draft(tmp_path, load_config(tmp_path), tokenizer=encoder().digest)
    assert TensorFiles.open(tmp_path)
