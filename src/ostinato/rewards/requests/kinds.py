"""The kinds of requests, and the labelled lines that ship: 342 requests from two generators.

`grammar` lines are built by chance from sentence patterns, `written` lines were written one by one, and each
has the kind that its writer meant.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from ostinato.rewards.naive_bayes import MOST_CHARACTERS, NaiveBayes

FILE = Path(__file__).with_name("lines.tsv")


class RequestKind(StrEnum):
    """A kind of work that a person wants of a session."""

    FIX = "fix"  # something works wrongly
    ADD = "add"  # something is not there yet
    CHANGE = "change"  # the same behaviour in another form: rename, move, replace, simplify
    TEST = "test"
    EXPLAIN = "explain"  # an answer, and no edit
    DOCS = "docs"
    OPERATE = "operate"  # a command: run, commit, install, deploy
    CONTINUE = "continue"  # whatever was agreed on before


OPENINGS = {
    RequestKind.CONTINUE: r"(y(es|ep|eah)?|ok(ay)?|sure|go (on|ahead)|continue|carry on|keep going|do it|"
    r"proceed|next|retry|try again|same|option|(and )?now the (same|rest)|sounds good|\d+\W*$)",
    RequestKind.EXPLAIN: r"(how|what|where|why|which|who|is|are|does|do (you|we|i)|can this|explain|tell me|"
    r"summari[sz]e|review|walk me|i do(n't| not) understand)",
    RequestKind.OPERATE: r"(run|commit|push|install|deploy|rebase|bump|upgrade|squash|merge|"
    r"resolve the merge|revert|start|stop|restart|docker|format|cherry.pick|regenerate|set up)",
    RequestKind.TEST: r"((re)?write|add|increase|raise|cover|mock|parametri[sz]e|unit|test|spec)\b.{0,40}?"
    r"\b(tests?|covers?|coverage|spec|fixtures?|doctests?|mocks?)",
    RequestKind.DOCS: r"(document|translate|describe|(write|add|update|improve|fix)\b.{0,40}?\b"
    r"(readme|docs?|docstrings?|documentation|changelog|comments?|guide|typos?|notes))",
    RequestKind.CHANGE: r"(rename|refactor|move|extract|split|replace|convert|simplify|inline|migrate|switch|"
    r"turn|reorgani[sz]e|reduce|drop|clean up)",
    RequestKind.FIX: r"(fix|bug|debug|repair|there is a bug)",
    RequestKind.ADD: r"(add|implement|create|build|introduce|support|extend)",
}
"""The openings of requests of each kind; the first that fits speaks, and the classifier where none does."""
RULES = {
    kind: re.compile(rf"\W*(please |can you |could you )?{each}\b", re.I) for kind, each in OPENINGS.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledRequest:
    """One request with its kind.

    >>> LabelledRequest(generator="written", kind=RequestKind.TEST, text="write tests for cart.py").kind.value
    'test'
    """

    generator: str
    kind: RequestKind
    text: str


@cache
def labelled_requests() -> tuple[LabelledRequest, ...]:
    """Return all lines that ship."""
    rows = (line.split("\t", 2) for line in FILE.read_text(encoding="utf-8").splitlines())
    return tuple(
        LabelledRequest(generator=generator, kind=RequestKind(kind), text=text)
        for generator, kind, text in rows
    )


@cache
def shipped() -> NaiveBayes[RequestKind]:
    """Return the classifier that was fitted on the lines that ship."""
    return NaiveBayes((line.text, line.kind) for line in labelled_requests())


def ruled_kind(request: str) -> RequestKind | None:
    """Return the kind that the opening of a request shows; None when it shows none."""
    opening = request[:MOST_CHARACTERS]
    return next((kind for kind, rule in RULES.items() if rule.match(opening)), None)


def kind_of(request: str, classifier: NaiveBayes[RequestKind] | None = None) -> RequestKind:
    """Return the kind of a request that its opening shows, else the most probable one. It reads English."""
    if (ruled := ruled_kind(request)) is not None:
        return ruled
    found = (classifier or shipped()).probabilities(request)
    return max(found, key=lambda kind: (found[kind], kind))
