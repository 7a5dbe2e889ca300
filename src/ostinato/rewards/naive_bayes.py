"""Naive Bayes over the words and pairs of words of a short text, for any set of labels."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

Label = TypeVar("Label", bound=Hashable)
WORD = re.compile(r"[\w']+|[!?]{2,}")
SMOOTHING = 0.5
MOST_CHARACTERS = 2_000
"""The characters that are read: a pasted log below says nothing about what the writer wants or feels."""


class NaiveBayes(Generic[Label]):
    """A classifier by the presence of words and pairs of words; `labels` are those of the texts it was given.

    >>> NaiveBayes([("still red", "bad"), ("thank you", "good")]).probabilities("red again")["bad"] > 0.5
    True
    """

    def __init__(self, lines: Iterable[tuple[str, Label]]) -> None:
        counts: dict[Label, Counter[str]] = defaultdict(Counter)
        total = Counter[Label]()
        for text, label in lines:
            counts[label].update(features(text))
            total[label] += 1
        if len(total) < 2:
            raise ValueError("a classifier needs lines of two labels or more")
        self.labels = tuple(total)
        self._prior = {label: math.log(total[label]) for label in self.labels}
        self._weights: dict[str, Mapping[Label, float]] = {
            feature: {
                label: math.log((counts[label][feature] + SMOOTHING) / (total[label] + 2 * SMOOTHING))
                for label in self.labels
            }
            for feature in set().union(*counts.values())
        }

    def probabilities(self, text: str) -> dict[Label, float]:
        """Return the probability of each label; words that no line had say nothing."""
        known = sorted(feature for feature in features(text) if feature in self._weights)
        scores = {
            label: self._prior[label] + math.fsum(self._weights[feature][label] for feature in known)
            for label in self.labels
        }
        most = max(scores.values())
        shares = {label: math.exp(score - most) for label, score in scores.items()}
        whole = math.fsum(shares.values())
        return {label: share / whole for label, share in shares.items()}


def features(text: str) -> set[str]:
    """Return the words and the pairs of words of a text, without the case."""
    words: Sequence[str] = WORD.findall(text[:MOST_CHARACTERS].lower())
    return {*words, *(f"{a} {b}" for a, b in pairwise(words))}
