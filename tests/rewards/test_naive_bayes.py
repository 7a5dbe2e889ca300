"""The classifier of short texts: any text has probabilities, which follow Bayes' rule on its words."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.rewards.naive_bayes import NaiveBayes, features

LINES = [("still red", "bad"), ("red again", "bad"), ("all green", "good"), ("thank you", "thanks")]


@given(st.text(max_size=300))
def test_the_probabilities_of_any_text_add_up_to_1(text: str) -> None:
    found = NaiveBayes(LINES).probabilities(text)
    assert set(found) == {"bad", "good", "thanks"} and min(found.values()) > 0
    assert math.isclose(sum(found.values()), 1.0)


def test_probabilities_are_those_of_bayes_rule_by_hand() -> None:
    """`red` is in both of two bad lines, and in none of one good line and one of thanks."""
    bad, other = 2 * (2.5 / 3), 1 * (0.5 / 2)
    assert NaiveBayes(LINES).probabilities("red")["bad"] == pytest.approx(bad / (bad + 2 * other))


def test_words_that_no_line_had_leave_the_shares_of_the_lines() -> None:
    assert NaiveBayes(LINES).probabilities("zebra") == pytest.approx(
        {"bad": 0.5, "good": 0.25, "thanks": 0.25}
    )


def test_a_long_log_is_not_read_to_its_end() -> None:
    assert features("word " * 100_000) == {"word", "word word"}


def test_one_label_alone_makes_no_classifier() -> None:
    with pytest.raises(ValueError, match="two labels or more"):
        NaiveBayes([("fine", False)])
