"""Kinds of requests are read from lines of a generator that the classifier has not seen."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.rewards.naive_bayes import NaiveBayes
from ostinato.rewards.requests.kinds import RequestKind, kind_of, labelled_requests, ruled_kind

LINES = labelled_requests()


def test_the_lines_are_many_balanced_and_each_is_there_once() -> None:
    assert len(LINES) >= 300 and len({line.text for line in LINES}) == len(LINES)
    counted = Counter((line.generator, line.kind) for line in LINES)
    assert len(counted) == 2 * len(RequestKind) and min(counted.values()) >= 20


@pytest.mark.parametrize(
    ("fitted", "read", "least"), [("grammar", "written", 0.7), ("written", "grammar", 0.9)]
)
def test_lines_of_another_generator_are_read_mostly_rightly(fitted: str, read: str, least: float) -> None:
    classifier = NaiveBayes((line.text, line.kind) for line in LINES if line.generator == fitted)
    others = [line for line in LINES if line.generator == read]
    assert sum(kind_of(line.text, classifier) is line.kind for line in others) / len(others) > least


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Please fix cart.py", RequestKind.FIX),
        ("write a test for cart.py", RequestKind.TEST),
        ("write the README", RequestKind.DOCS),
        ("yes, do that", RequestKind.CONTINUE),
        ("why is it slow?", RequestKind.EXPLAIN),
        ("the cart is empty after a reload", None),
    ],
)
def test_an_opening_speaks_before_the_classifier(text: str, kind: RequestKind | None) -> None:
    assert ruled_kind(text) is kind and kind_of(text) in RequestKind


@given(st.text(max_size=300))
def test_any_text_has_a_kind(text: str) -> None:
    assert kind_of(text) in RequestKind
