import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.model.decoder import Decoder
from ostinato.train.batch import by_length, counted_logprobs, padded


def test_padding_is_on_the_right() -> None:
    assert padded([(1, 2, 3), (4,)], torch.long).tolist() == [[1, 2, 3], [4, 0, 0]]


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(100, 1000))
def test_pieces_hold_every_row_once_within_the_budget(lengths: list[int], tokens: int) -> None:
    pieces = list(by_length(range(len(lengths)), lengths, tokens))
    assert sorted(row for piece in pieces for row in piece) == list(range(len(lengths)))
    for piece in pieces:
        assert len(piece) == 1 or len(piece) * max(lengths[row] for row in piece) <= tokens


def test_logprobs_are_those_of_the_whole_forward_pass(decoder: Decoder) -> None:
    ids = torch.randint(0, 40, (3, 9))
    counted = torch.rand(3, 9) < 0.5
    logits, _ = decoder(ids)
    full = torch.log_softmax(logits[:, :-1], -1).gather(-1, ids[:, 1:, None])[..., 0]
    torch.testing.assert_close(counted_logprobs(decoder, ids, counted), full[counted[:, 1:]])


def test_padding_changes_nothing(decoder: Decoder) -> None:
    row, counted = torch.randint(0, 40, (1, 7)), torch.ones(1, 7, dtype=torch.bool)
    longer = torch.cat((row, torch.zeros(1, 5, dtype=torch.long)), 1)
    masked = torch.cat((counted, torch.zeros(1, 5, dtype=torch.bool)), 1)
    torch.testing.assert_close(
        counted_logprobs(decoder, longer, masked), counted_logprobs(decoder, row, counted)
    )
