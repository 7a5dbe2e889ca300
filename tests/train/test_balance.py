"""Rows shared out over ranks: each once, of about equal cost, with the gradient of one rank alone."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.train.fsdp.models import checkpoint
from tests.train.fsdp.models import rows as rows_with_prefix

from ostinato.train.balance import cost, shared_out
from ostinato.train.batch import ScoredRow
from ostinato.train.fsdp.scoring import load_scoring
from ostinato.train.packing import Pack


def unlike(lengths: Sequence[int]) -> list[ScoredRow]:
    """Rows that share no prefix."""
    return [
        ScoredRow(ids=(i,) + (1,) * (length - 1), counted=(False,) + (True,) * (length - 1))
        for i, length in enumerate(lengths)
    ]


def cost_of(part: Pack, rows: Sequence[ScoredRow], attention: float) -> float:
    return cost([rows[i] for i in part.rows], attention) if part.rows else 0.0


@given(
    st.integers(1, 25), st.sampled_from((0, 20)), st.integers(1, 150), st.integers(1, 5), st.integers(0, 999)
)
def test_each_row_is_once_on_one_rank_and_all_ranks_have_as_many_packs(
    count: int, prefix: int, tokens: int, ranks: int, seed: int
) -> None:
    rows = rows_with_prefix(count, prefix=prefix, seed=seed)
    dealt = shared_out(rows, tokens, ranks, 0.01)
    assert sorted(i for own in dealt for part in own for i in part.rows) == list(range(count))
    assert len(dealt) == ranks and len({len(own) for own in dealt}) == 1
    assert all(len(part.rows) <= 1 or len(part.ids_T) <= tokens for own in dealt for part in own)


@given(
    st.lists(st.integers(2, 120), min_size=1, max_size=25),
    st.integers(2, 5),
    st.sampled_from((0.0, 0.003, 0.1)),
)
def test_no_rank_and_no_pack_costs_much_more_than_the_mean(
    lengths: list[int], ranks: int, attention: float
) -> None:
    """The bounds that the docstring states; the memory for a pack is no limit here."""
    rows = unlike(lengths)
    dealt = shared_out(rows, 10_000, ranks, attention)
    costs = [[cost_of(part, rows, attention) for part in own] for own in dealt]
    packs, largest = [each for own in costs for each in own], max(cost([row], attention) for row in rows)
    slack = 1e-5 * sum(packs)
    assert max(packs) <= sum(packs) / len(packs) + largest + slack
    assert max(map(sum, costs)) <= sum(packs) / ranks + max(packs) + slack


def test_many_sessions_of_mixed_lengths_are_even_within_a_few_hundredths() -> None:
    """240 rows of 50 to 2,000 tokens on 4 ranks: the largest over the mean, of ranks and of each round."""
    rng = random.Random(1)
    rows = unlike([rng.choice((50, 200, 600, 2000)) for _ in range(240)])
    attention = 3e-4
    dealt = shared_out(rows, 8192, 4, attention)
    costs = [[cost_of(part, rows, attention) for part in own] for own in dealt]
    mean = sum(map(sum, costs)) / 4
    assert max(map(sum, costs)) / mean < 1.03
    assert sum(max(together) for together in zip(*costs, strict=True)) / mean < 1.05


def test_the_gradient_is_that_of_one_rank(tmp_path: Path) -> None:
    """The sum over two ranks' packs, against all packs in one process, to 1e-6 of the largest entry."""
    rows = rows_with_prefix(17, prefix=9, seed=3)
    scoring = load_scoring(checkpoint(tmp_path))
    gradients = []
    for ranks in (1, 2, 3):
        scoring.zero_grad()
        for own in shared_out(rows, 120, ranks, 0.01):
            for part in own:
                scores = scoring(part)
                weights = torch.tensor([float(i + 1) for i in part.rows for _ in rows[i].places])
                (scores.logprobs_N * weights).sum().backward() if part.rows else None
        gradients.append(
            {name: p.grad.clone() for name, p in scoring.named_parameters() if p.grad is not None}
        )
    for other in gradients[1:]:
        for name, expected in gradients[0].items():
            scale = float(expected.abs().max())
            torch.testing.assert_close(other[name], expected, rtol=0, atol=1e-6 * max(1.0, scale))


def test_without_a_row_to_score_nobody_computes() -> None:
    assert shared_out([], 10, 2, 0.0) == [[], []]


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_without_rows_of_its_own_scores_a_token_for_nothing(ranks: int) -> None:
    dealt = shared_out(unlike([9]), 10, ranks, 0.0)
    assert sorted(len(own[0].rows) for own in dealt) == [0] * (ranks - 1) + [1]
    assert all(len(own[0].targets_N) for own in dealt)
