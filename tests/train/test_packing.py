"""Packing leaves every row as it is: each token once, in its place, after the prefix that all share."""

from hypothesis import given
from hypothesis import strategies as st
from tests.train.fsdp.models import rows

from ostinato.train.batch import ScoredRow
from ostinato.train.packing import common_prefix, pack, packs


@given(st.integers(1, 12), st.integers(0, 20), st.integers(1, 200), st.integers(0, 10**6))
def test_each_row_is_in_one_pack_and_can_be_read_back(
    count: int, prefix: int, tokens: int, seed: int
) -> None:
    given_rows = rows(count, prefix=prefix, seed=seed)
    made = packs(given_rows, tokens)
    assert sorted(i for part in made for i in part.rows) == list(range(count))
    for part in made:
        assert len(part.rows) == 1 or len(part.ids_T) <= tokens
        ids, positions = part.ids_T.tolist(), part.positions_T.tolist()
        scored = 0
        for number, (start, end), mask in zip(part.rows, part.spans, part.masks, strict=True):
            row = given_rows[number]
            assert (*ids[: part.prefix], *ids[start:end]) == row.ids[:-1]
            assert positions[: part.prefix] + positions[start:end] == list(range(len(row.ids) - 1))
            assert (mask is None) == (part.prefix == 0)
            if mask is not None:
                assert [int(line.sum()) for line in mask] == [part.prefix + i + 1 for i in range(end - start)]
            for place in row.places:
                assert positions[part.sources_N[scored]] == place - 1
                assert ids[part.sources_N[scored]] == row.ids[place - 1]
                assert part.targets_N[scored] == row.ids[place]
                scored += 1
        assert scored == len(part.targets_N)


def test_sessions_with_one_system_prompt_share_it() -> None:
    given_rows = rows(8, prefix=50)
    (part,) = packs(given_rows, 10_000)
    assert part.prefix >= 50
    assert len(part.ids_T) <= 50 + sum(len(row.ids) - 51 for row in given_rows)


def test_the_first_scored_token_is_never_in_the_prefix() -> None:
    row = ScoredRow(ids=(1, 2, 3, 4), counted=(False, True, False, True))
    assert common_prefix(row, row) == 1
    made = pack([row, row])
    assert made.prefix == 1 and made.sources_N.tolist() == [0, 2, 0, 4]


def test_a_row_with_nothing_to_score_is_left_out() -> None:
    assert packs([ScoredRow(ids=(1, 2), counted=(True, False))], 10) == []
