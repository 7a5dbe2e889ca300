"""Each correction by its definition, and chosen by its settings.

Covers train/objective/plain.py, train/objective/truncated.py, train/objective/icepop.py,
train/objective/sequence.py and the part of train/config.py that refuses bounds a correction does not have.
"""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.train.config import PolicyConfig
from ostinato.train.objective.corrections import correction_of

KINDS: tuple[dict[str, Any], ...] = (
    {"correction": "none"},
    {"correction": "truncated", "ratio_cap": 1.5},
    {"correction": "icepop", "ratio_low": 0.6, "ratio_high": 4.0},
    {"correction": "sequence", "ratio_cap": 1.5},
)
some_rows = st.lists(st.lists(st.floats(-3, 3), min_size=1, max_size=5), min_size=1, max_size=5)


def weights(rows: list[list[float]], **settings: Any) -> tuple[list[list[float]], list[list[bool]]]:
    """The weights and the cuts of tokens, row by row, from their log ratios."""
    deltas = torch.tensor([delta for row in rows for delta in row], dtype=torch.float64)
    numbers = torch.tensor([i for i, row in enumerate(rows) for _ in row])
    found, cut = correction_of(PolicyConfig(**settings))(deltas, numbers)
    lengths = [len(row) for row in rows]
    return [part.tolist() for part in found.split(lengths)], [part.tolist() for part in cut.split(lengths)]


@given(some_rows)
def test_each_is_what_its_definition_says(rows: list[list[float]]) -> None:
    ratios = [[math.exp(delta) for delta in row] for row in rows]
    expected = {
        "none": [[1.0] * len(row) for row in rows],
        "truncated": [[min(r, 1.5) for r in row] for row in ratios],
        "icepop": [[r if 0.6 <= r <= 4.0 else 0.0 for r in row] for row in ratios],
        "sequence": [[min(math.prod(row) ** (1 / len(row)), 1.5)] * len(row) for row in ratios],
    }
    for settings in KINDS:
        found, cut = weights(rows, **settings)
        for ours, theirs in zip(found, expected[settings["correction"]], strict=True):
            assert ours == pytest.approx(theirs, rel=1e-9)
        kept = [
            w == pytest.approx(r)
            for ws, rs in zip(found, ratios, strict=True)
            for w, r in zip(ws, rs, strict=True)
        ]
        if settings["correction"] in {"truncated", "icepop"}:
            assert [not each for row in cut for each in row] == kept
        if settings["correction"] == "none":
            assert not any(each for row in cut for each in row)


@pytest.mark.parametrize("settings", KINDS, ids=lambda settings: settings["correction"])
def test_on_policy_every_token_counts_once_and_none_is_cut(settings: dict[str, Any]) -> None:
    found, cut = weights([[0.0, 0.0], [0.0]], **settings)
    assert found == [[1.0, 1.0], [1.0]] and cut == [[False, False], [False]]


@pytest.mark.parametrize("settings", KINDS, ids=lambda settings: settings["correction"])
def test_a_ratio_beyond_all_floats_is_bounded_or_left_out(settings: dict[str, Any]) -> None:
    """log pi - log mu of +-2,000 overflows e^x; no weight may become infinite or no number."""
    found, _ = weights([[2000.0], [-2000.0], [0.0]], **settings)
    assert all(math.isfinite(weight) for row in found for weight in row) and found[2] == [1.0]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"correction": "none", "ratio_cap": 3.0}, "ratio_cap is set and the correction is none"),
        ({"correction": "icepop", "ratio_cap": 3.0}, "only truncated and sequence has it"),
        ({"correction": "truncated", "ratio_low": 0.1}, "ratio_low is set and the correction is truncated"),
        ({"correction": "sequence", "ratio_high": 9.0}, "only icepop has it"),
        ({"correction": "icepop", "ratio_low": 1.0}, "must count whole"),
        ({"correction": "icepop", "ratio_high": 0.9}, "must count whole"),
        ({"ratio_cap": 0.5}, "must count whole"),
        ({"ratio_cap": math.nan}, "must count whole"),
        ({"k1": -0.1}, "is a weight of at least 0"),
        ({"k1": math.nan}, "is a weight of at least 0"),
        ({"k1_reference": 3}, "names a version only where it is above 0"),
        ({"tokens_per_session": math.inf}, "must be above 0"),
    ],
    ids=str,
)
def test_contradictory_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PolicyConfig(**settings)


def test_an_unknown_correction_is_refused_where_settings_are_read() -> None:
    from ostinato.config import ConfigError, read

    with pytest.raises(ConfigError, match="correction"):
        read(PolicyConfig, {"correction": "ppo"}, "a file")
