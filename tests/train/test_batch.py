import random
from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.model.decoder import Decoder
from ostinato.train.batch import ScoredRow, by_length, counted_scores, padded


def row(length: int, seed: int) -> ScoredRow:
    rng = random.Random(seed)
    return ScoredRow(
        ids=tuple(rng.randrange(40) for _ in range(length)),
        counted=(False, *(rng.random() < 0.5 for _ in range(length - 2)), True),
    )


def test_padding_is_on_the_right() -> None:
    assert padded([(1, 2, 3), (4,)], torch.long).tolist() == [[1, 2, 3], [4, 0, 0]]


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(100, 1000))
def test_pieces_hold_every_row_once_within_the_budget(lengths: list[int], tokens: int) -> None:
    pieces = list(by_length(lengths, tokens))
    assert sorted(row for piece in pieces for row in piece) == list(range(len(lengths)))
    for piece in pieces:
        assert len(piece) == 1 or len(piece) * max(lengths[row] for row in piece) <= tokens


def test_logprobs_are_those_of_the_whole_forward_pass(decoder: Decoder) -> None:
    rows = [row(9, seed) for seed in range(3)]
    ids = torch.tensor([each.ids for each in rows])
    counted = torch.tensor([each.counted for each in rows])
    logits, _ = decoder(ids)
    full = torch.log_softmax(logits[:, :-1], -1).gather(-1, ids[:, 1:, None])[..., 0]
    torch.testing.assert_close(counted_scores(decoder, rows).logprobs_N, full[counted[:, 1:]])


def test_padding_changes_nothing(decoder: Decoder) -> None:
    short, long = row(7, 1), row(12, 2)
    both = counted_scores(decoder, [short, long]).logprobs_N
    alone = torch.cat([counted_scores(decoder, [each]).logprobs_N for each in (short, long)])
    torch.testing.assert_close(both, alone)


def test_temperatures_scale_the_logits_of_their_own_tokens(decoder: Decoder) -> None:
    plain = row(9, 1)
    hot = replace(plain, temperatures=(2.0,) * 9)
    logits, _ = decoder(torch.tensor([plain.ids]))
    places = torch.tensor(plain.places)
    full = torch.log_softmax(logits[0, places - 1] / 2, -1)
    expected = full.gather(1, torch.tensor(plain.ids)[places, None])[:, 0]
    mixed = counted_scores(decoder, [plain, hot]).logprobs_N
    torch.testing.assert_close(mixed[len(places) :], expected)
    torch.testing.assert_close(mixed[: len(places)], counted_scores(decoder, [plain]).logprobs_N)
