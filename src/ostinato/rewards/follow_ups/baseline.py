"""A reader of follow-ups that needs no service: a few rules, and a small classifier where no rule speaks.

The classifier is naive Bayes over words and pairs of words, fitted on the lines that ship. It is a
baseline: it knows English phrases of dissatisfaction, and little of irony or of other languages.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise

from ostinato.rewards.follow_ups.lines import labelled_lines

WORD = re.compile(r"[\w']+|[!?]{2,}")
ANGRY = re.compile(
    r"\b(wtf|not what i (asked|meant|wanted)|i (told|asked) you (not|already)"
    r"|you (broke|ignored|forgot|hallucinated)|(still|again) (fails|failing|broken|red|crashes|wrong)"
    r"|(doesn't|does not|didn't|did not) (work|fix|help)|worse than|did you even|roll it back|wrong again)\b",
    re.IGNORECASE,
)
"""Phrases that show dissatisfaction wherever they stand."""
CONTENT = re.compile(r"^\W*(thanks?|thank you|perfect|great|love it|lgtm|nice|works)\b", re.IGNORECASE)
"""Openings that show contentment, unless a phrase above follows."""
RULE_SURE = 0.95
SMOOTHING = 0.5
MOST_CHARACTERS = 2_000
"""What is read of a follow-up: a pasted log says nothing about the developer's mood."""


class Classifier:
    """A naive Bayes classifier of lines, by the presence of words and pairs of words."""

    def __init__(self, lines: Iterable[tuple[str, bool]]) -> None:
        counts: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
        total = Counter[bool]()
        for text, label in lines:
            counts[label].update(features(text))
            total[label] += 1
        if not total[True] or not total[False]:
            raise ValueError("a classifier needs lines of both labels")
        self._prior = math.log(total[True] / total[False])
        self._weights = {
            feature: math.log((counts[True][feature] + SMOOTHING) / (total[True] + 2 * SMOOTHING))
            - math.log((counts[False][feature] + SMOOTHING) / (total[False] + 2 * SMOOTHING))
            for feature in counts[True].keys() | counts[False].keys()
        }

    def probability(self, text: str) -> float:
        """Return the probability that the line shows dissatisfaction."""
        odds = self._prior + math.fsum(self._weights.get(feature, 0.0) for feature in sorted(features(text)))
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))


def features(text: str) -> set[str]:
    """Return the words and the pairs of words of a line, without the case."""
    words: Sequence[str] = WORD.findall(text[:MOST_CHARACTERS].lower())
    return {*words, *(f"{a} {b}" for a, b in pairwise(words))}


def ruled(text: str) -> float | None:
    """Return the probability that a rule gives, None where none speaks."""
    text = text[:MOST_CHARACTERS]
    if ANGRY.search(text):
        return RULE_SURE
    return 1 - RULE_SURE if CONTENT.search(text) else None


def dissatisfaction(text: str, classifier: Classifier) -> float:
    """Return the probability that a follow-up shows dissatisfaction with what the agent did."""
    rule = ruled(text)
    return classifier.probability(text) if rule is None else rule


@cache
def shipped() -> Classifier:
    """Return the classifier that was fitted on the lines that ship."""
    return Classifier((line.text, line.intended) for line in labelled_lines())
