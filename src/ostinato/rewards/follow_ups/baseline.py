"""A reader of follow-ups that needs no service: a few rules, and a small classifier where no rule speaks.

The classifier is naive Bayes, fitted on the lines that ship. It is a
baseline: it knows English phrases of dissatisfaction, and little of irony or of other languages.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ostinato.rewards.naive_bayes import MOST_CHARACTERS, NaiveBayes

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


def ruled(text: str) -> float | None:
    """Return the probability that a rule gives, None where none speaks."""
    text = text[:MOST_CHARACTERS]
    if ANGRY.search(text):
        return RULE_SURE
    return 1 - RULE_SURE if CONTENT.search(text) else None


def dissatisfaction(text: str, classifier: NaiveBayes[bool]) -> float:
    """Return the probability that a follow-up shows dissatisfaction with what the agent did."""
    rule = ruled(text)
    return classifier.probabilities(text)[True] if rule is None else rule


@cache
def shipped() -> NaiveBayes[bool]:
    """Return the classifier that was fitted on the lines that ship."""
    return NaiveBayes((line.text, line.intended) for line in labelled_lines())


FILE = Path(__file__).with_name("lines.tsv")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledLine:
    """One follow-up with both labels; True when it shows dissatisfaction.

    >>> LabelledLine(generator="written", intended=True, read=True, text="still red").intended
    True
    """

    generator: str
    intended: bool
    read: bool
    text: str


@cache
def labelled_lines() -> tuple[LabelledLine, ...]:
    """Return all lines that ship."""
    rows = (line.split("\t", 3) for line in FILE.read_text(encoding="utf-8").splitlines())
    return tuple(
        LabelledLine(generator=generator, intended=first == "1", read=second == "1", text=text)
        for generator, first, second, text in rows
    )
