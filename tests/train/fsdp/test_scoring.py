"""Packed rows are scored and differentiated as transformers scores each alone."""

import json
from pathlib import Path

import pytest
import torch
from tests.train.fsdp.models import FAMILIES, SIZES, checkpoint, rows
from transformers import AutoModelForCausalLM, GraniteConfig, MistralConfig

from ostinato.model.tensor_files import CheckpointError
from ostinato.train.batch import ScoredRow
from ostinato.train.fsdp.scoring import HEAD_TOKENS, load_scoring
from ostinato.train.packing import packs


def plain(model: torch.nn.Module, row: ScoredRow) -> torch.Tensor:
    ids, places = torch.tensor(row.ids), torch.tensor(row.places)
    logits = model(input_ids=ids[None]).logits[0, places - 1]
    scaled = logits / torch.tensor([row.temperatures[place] for place in row.places])[:, None]
    return torch.log_softmax(scaled, -1).gather(1, ids[places, None])[:, 0]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tokens", [1, 60, 10_000])
def test_scores_and_gradients_are_those_of_transformers(family: str, tokens: int, tmp_path: Path) -> None:
    given_rows = rows(40, prefix=20)
    scoring = load_scoring(checkpoint(tmp_path, FAMILIES[family]))
    assert sum(len(row.places) for row in given_rows) > HEAD_TOKENS
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    for part in packs(given_rows, tokens):
        expected = torch.cat([plain(model, given_rows[i]) for i in part.rows])
        scores = scoring(part).logprobs_N
        torch.testing.assert_close(scores, expected, rtol=0, atol=1e-5)
        weights = torch.linspace(-1, 1, len(scores))
        (scores * weights).sum().backward()
        (expected * weights).sum().backward()
    own = dict(model.named_parameters())
    for name, parameter in scoring.model.named_parameters():
        torch.testing.assert_close(parameter.grad, own[name].grad, rtol=1e-3, atol=1e-4)


def test_a_sliding_window_is_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path, MistralConfig(**SIZES, sliding_window=16))
    with pytest.raises(CheckpointError, match="sliding window"):
        load_scoring(tmp_path)


def test_an_architecture_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    words = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(words | {"model_type": "hyena9"}))
    with pytest.raises(CheckpointError, match=r"transformers cannot load it: .*hyena9"):
        load_scoring(tmp_path)


def test_logits_that_are_scaled_are_noticed(tmp_path: Path) -> None:
    checkpoint(tmp_path, GraniteConfig(**SIZES, logits_scaling=8.0))
    with pytest.raises(CheckpointError, match="not scored as its own forward pass"):
        load_scoring(tmp_path)
