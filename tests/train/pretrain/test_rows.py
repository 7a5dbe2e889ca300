"""Packs of text: confined, a document is scored as if alone; otherwise it sees what lies before it.

Covers train/pretrain/rows.py with `local.DecoderModel` and `losses.text_scores_of`.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from ostinato.data.corpus import TextRow
from ostinato.model.decoder import Decoder
from ostinato.train import losses
from ostinato.train.local import DecoderModel
from ostinato.train.pretrain.rows import text_pack, text_packs

ROWS = [
    TextRow(ids=np.arange(12) % 7, starts=(0, 5, 6)),
    TextRow(ids=np.arange(20, 32) % 39, starts=(0,)),
]


def alone(decoder: Decoder, ids: np.ndarray) -> torch.Tensor:
    given = torch.from_numpy(ids)
    with torch.no_grad():
        logits = decoder(given[None])[0][0, :-1]
    return -torch.log_softmax(logits, -1).gather(1, given[1:, None])[:, 0]


def documents(row: TextRow) -> list[np.ndarray]:
    return [part for part in np.split(row.ids, row.starts[1:]) if len(part) > 1]


def test_a_confined_document_is_scored_as_if_it_were_alone(decoder: Decoder, tmp_path: Path) -> None:
    model = DecoderModel(decoder, tmp_path)
    (nats,) = model.text_nats([text_pack(ROWS, confined=True)])
    wanted = [alone(decoder, ids) for row in ROWS for ids in documents(row)]
    torch.testing.assert_close(nats, torch.cat(wanted), atol=1e-5, rtol=0)


def test_an_open_row_sees_the_documents_before_and_predicts_the_same_tokens(
    decoder: Decoder, tmp_path: Path
) -> None:
    model = DecoderModel(decoder, tmp_path)
    packs = list(text_packs(ROWS, 12, confined=False))
    assert len(packs) == 2
    confined = text_pack(ROWS[:1], confined=True)
    assert packs[0].targets_N.tolist() == confined.targets_N.tolist()
    whole = alone(decoder, ROWS[0].ids)
    nats = model.text_nats(packs)
    torch.testing.assert_close(nats[0], whole[packs[0].sources_N], atol=1e-5, rtol=0)
    assert not torch.allclose(nats[0], model.text_nats([confined])[0])


def test_the_gradient_is_that_of_the_mean_over_all_packs(
    decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not depend on how rows are packed, nor on the pieces that logits are computed in."""

    def gradients(tokens: int) -> tuple[losses.TextSums, list[torch.Tensor]]:
        model = DecoderModel(decoder, tmp_path)
        sums = model.accumulate_text(list(text_packs(ROWS, tokens, confined=True)), 0.1)
        found = [parameter.grad.clone() for parameter in decoder.parameters() if parameter.grad is not None]
        model.discard()
        return sums, found

    sums, whole = gradients(1000)
    monkeypatch.setattr(losses, "LOGITS", 3 * decoder.config.vocab_size)
    parts, pieces = gradients(12)
    assert parts.tokens == sums.tokens == 20 and parts.nats == pytest.approx(sums.nats)
    assert parts.squares == pytest.approx(sums.squares)
    for one, other in zip(whole, pieces, strict=True):
        torch.testing.assert_close(one, other)


def test_the_z_loss_is_the_square_of_the_normaliser() -> None:
    logits = torch.randn(5, 9, requires_grad=True)
    ids = torch.tensor([0, 3, 8, 1, 1])
    scores = losses.text_scores(logits, ids)
    normaliser = torch.logsumexp(logits, -1)
    torch.testing.assert_close(scores.normalisers_N, normaliser)
    losses.text_loss(scores, 0.5, 5).backward()
    wanted = torch.autograd.grad(
        torch.nn.functional.cross_entropy(logits, ids) + 0.5 * normaliser.square().mean(), logits
    )[0]
    torch.testing.assert_close(logits.grad, wanted)
