"""Numbers come back from Rice codes, in about the bits that theory predicts.

Covers sync/codec/rice.py and sync/codec/sparse_rows.py.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.sync.codec import rice, sparse_rows
from ostinato.sync.codec.payload import DamagedPayload, PayloadReader

small = st.integers(0, 5)
numbers = st.one_of(small, st.integers(0, 1 << 20), st.integers(0, 1 << 33))


def there_and_back(values: np.ndarray, lengths: np.ndarray) -> int:
    body = rice.packed(values, lengths)
    reader = PayloadReader(body)
    assert rice.read(reader, lengths).tolist() == values.tolist()
    reader.end()
    return len(body)


@given(st.lists(st.lists(numbers, max_size=40), max_size=5))
def test_numbers_of_any_size_come_back(rows: list[list[int]]) -> None:
    values = np.array([value for row in rows for value in row], np.int64)
    there_and_back(values, np.array([len(row) for row in rows], np.int64))


@pytest.mark.parametrize("p", [0.5, 0.1, 0.01, 1e-4])
def test_geometric_numbers_take_hardly_more_than_their_entropy(p: float) -> None:
    count = 50_000
    values = np.random.default_rng(0).geometric(p, count) - 1
    entropy = -(p * np.log2(p) + (1 - p) * np.log2(1 - p)) / p
    assert 8 * there_and_back(values, np.array([count])) / count < entropy + 0.1


def test_each_block_has_its_own_k() -> None:
    random = np.random.default_rng(0)
    dense, rare = random.geometric(0.5, 4096) - 1, random.geometric(1e-3, 4096) - 1
    together = there_and_back(np.concatenate((dense, rare)), np.array([8192]))
    apart = there_and_back(dense, np.array([4096])) + there_and_back(rare, np.array([4096]))
    assert together < apart + 16


def test_an_outlier_costs_itself_only() -> None:
    values = np.ones(10_000, np.int64)
    alone = there_and_back(values, np.array([10_000]))
    values[5000] = 1 << 33
    assert there_and_back(values, np.array([10_000])) < alone + 20


@given(st.lists(st.lists(st.one_of(st.just(0), small, numbers), max_size=60), min_size=1, max_size=4))
def test_rows_come_back(rows: list[list[int]]) -> None:
    lengths = np.array([len(row) for row in rows], np.int64)
    values = np.array([value for row in rows for value in row], np.int64)
    reader = PayloadReader(sparse_rows.packed(sparse_rows.rows_of(values, lengths)))
    back = sparse_rows.read(reader, lengths)
    reader.end()
    assert sparse_rows.dense(back.at, back.values, len(values)).tolist() == values.tolist()
    assert back.counts.tolist() == [sum(value > 0 for value in row) for row in rows]


def test_places_beyond_a_row_are_refused() -> None:
    for gaps in ([3], [0, 0, 0, 0], [1 << 60] * 4):
        with pytest.raises(DamagedPayload, match="beyond"):
            sparse_rows.places(np.array(gaps, np.int64), 3)
    assert sparse_rows.places(np.array([0, 1]), 3).tolist() == [0, 2]
