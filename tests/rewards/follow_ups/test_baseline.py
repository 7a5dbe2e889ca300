"""The reader of follow-ups that needs no service, on the lines that ship.

Covers rewards/follow_ups/lines.py, with fuzz/agreement.py.
"""

from collections import Counter

import pytest
from fuzz.agreement import agreement
from hypothesis import given
from hypothesis import strategies as st

from ostinato.rewards.follow_ups.baseline import dissatisfaction, labelled_lines, ruled, shipped
from ostinato.rewards.naive_bayes import NaiveBayes

LINES = labelled_lines()


def test_the_lines_are_many_balanced_and_each_is_there_once() -> None:
    assert len(LINES) >= 300 and len({line.text for line in LINES}) == len(LINES)
    counted = Counter((line.generator, line.intended) for line in LINES)
    assert set(counted) == {(name, label) for name in ("grammar", "written") for label in (True, False)}
    assert min(counted.values()) >= 75


def test_the_two_labellings_agree_and_are_not_copies() -> None:
    labels = agreement([line.intended for line in LINES], [line.read for line in LINES])
    assert 0.9 < labels.kappa < 1


@pytest.mark.parametrize(
    ("fitted", "read", "least"), [("grammar", "written", 0.5), ("written", "grammar", 0.7)]
)
def test_lines_of_another_generator_are_read_better_than_by_chance(
    fitted: str, read: str, least: float
) -> None:
    classifier = NaiveBayes((line.text, line.intended) for line in LINES if line.generator == fitted)
    others = [line for line in LINES if line.generator == read]
    found = [dissatisfaction(line.text, classifier) >= 0.5 for line in others]
    assert agreement([line.intended for line in others], found).kappa > least


def test_a_rule_speaks_before_the_classifier() -> None:
    assert ruled("Great, but that is not what I asked") == ruled("you broke CI") == 0.95
    assert ruled("thanks, next file") == pytest.approx(0.05) and ruled("next file") is None


@given(st.text(max_size=300))
def test_any_text_has_a_probability(text: str) -> None:
    assert 0 <= dissatisfaction(text, shipped()) <= 1


# A second implementation of kappa, from the table of counts.


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_the_agreement_is_that_of_the_table_of_counts(pairs: list[tuple[bool, bool]]) -> None:
    truth, found = [a for a, _ in pairs], [b for _, b in pairs]
    result, table = agreement(truth, found), Counter(pairs)
    hit, extra, missed = table[True, True], table[False, True], table[True, False]
    n, right = len(pairs), hit + table[False, False]
    if hit + extra:
        assert result.precision == pytest.approx(hit / (hit + extra))
    if hit + missed:
        assert result.recall == pytest.approx(hit / (hit + missed))
    expected = (hit + extra) * (hit + missed) + (n - hit - extra) * (n - hit - missed)
    if expected != n * n:
        assert result.kappa == pytest.approx((n * right - expected) / (n * n - expected))


def test_lists_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="got 1 and 2"):
        agreement([True], [True, False])
