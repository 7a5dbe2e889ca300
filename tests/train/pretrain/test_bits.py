"""Bits a byte: the same whatever the tokens are, by position."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.data.test_corpus import write
from tests.data.toolbox import encoder

from ostinato.data.corpus import Corpus, TextRow
from ostinato.train.base import StateError
from ostinato.train.pretrain.bits import bits_of, held_out_rows


def test_bits_count_the_bytes_of_text_and_no_control_token() -> None:
    tokenizer = encoder()
    text = tokenizer.encode("é" * 100)  # two bytes, each a token
    end = tokenizer.id_of("<|endoftext|>")
    assert end is not None
    row = TextRow(ids=np.array([*text[:150], end, *text[150:]]), starts=(0,))
    nats = torch.full((200,), 2 * math.log(2))
    nats[149] = 100.0  # of the control token
    nats[:63] = 8 * math.log(2)
    bits = bits_of([row, row], [nats, nats], tokenizer)
    assert bits.by_position == pytest.approx({0: 8.0, 64: 2.0, 128: 2.0})
    assert bits.all == pytest.approx((63 * 8 + 136 * 2) / 199)


def test_rows_are_spread_over_the_held_out_sources(tmp_path: Path) -> None:
    corpus = Corpus.open(write(tmp_path, {"one": [50], "held": [100, 7]}, held={"held_out": True}))
    assert [int(row.ids[0]) for row in held_out_rows(corpus, 10, 4)] == [50, 80, 110, 140]
    assert len(held_out_rows(corpus, 10, 40)) == 10
    with pytest.raises(StateError, match="no held-out document of the corpus has 200 tokens"):
        held_out_rows(corpus, 200, 4)
