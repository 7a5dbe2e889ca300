"""Strata of live sessions: the kind of what was asked first, and the language of the repository.

Both are read from the first prompt, before the policy did anything: a stratum that depended on what the
policy did would take a part of its effect out of the reward.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ostinato.model.tokenizer import Tokenizer
from ostinato.rewards.follow_ups.read import first_request
from ostinato.rewards.requests.kinds import kind_of
from ostinato.types import Turn

LANGUAGES = {
    "c": "c h",
    "c++": "cc cpp cxx hpp",
    "c#": "cs",
    "go": "go",
    "java": "java kt scala",
    "javascript": "js jsx ts tsx mjs vue svelte",
    "php": "php",
    "python": "py pyi ipynb",
    "ruby": "rb",
    "rust": "rs",
    "shell": "sh bash zsh",
    "swift": "swift m",
    "web": "html css scss",
}
LANGUAGE_OF = {ending: language for language, endings in LANGUAGES.items() for ending in endings.split()}
FILE_NAME = re.compile(r"\b[\w/-]+\.([a-z]{1,6}|c\+\+)\b")
LEAST = 8
"""The sessions that a stratum needs; the mean of fewer is a noisier baseline than that of a wider stratum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request of a session as its first prompt shows it.

    >>> Request(kind="fix", language="python").strata
    ('fix/python', 'fix', '')
    """

    kind: str
    language: str
    """The language of most file names in the prompt; empty where it names none."""

    @property
    def strata(self) -> tuple[str, ...]:
        """The strata that it lies in, the narrowest first; the last one holds everything."""
        return (f"{self.kind}/{self.language}", self.kind, "") if self.language else (self.kind, "")


def request_of(turns: Sequence[Turn], tokenizer: Tokenizer) -> Request | None:
    """Return what the first prompt asks for; None when it cannot be read as messages."""
    first = first_request(turns, tokenizer)
    if first is None:
        return None
    return Request(kind=kind_of(first.text), language=language_of(first.prompt))


def language_of(text: str) -> str:
    """Return the language of most of the file names in a text, each counted once; empty without any."""
    names = {match[0]: match[1] for match in FILE_NAME.finditer(text)}
    counts = Counter(LANGUAGE_OF[ending] for ending in names.values() if ending in LANGUAGE_OF)
    return min(counts, key=lambda language: (-counts[language], language), default="")


def strata(requests: Mapping[str, Request], least: int = LEAST) -> dict[str, str]:
    """Return the stratum of each session: the narrowest of its own that holds `least` sessions or more."""
    sizes = Counter(name for request in requests.values() for name in request.strata)
    return {
        id_: next((name for name in request.strata if sizes[name] >= least), "")
        for id_, request in requests.items()
    }
