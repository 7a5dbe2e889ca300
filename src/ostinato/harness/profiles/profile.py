"""Profiles: the prompt and the tools that the model is shown, as data over one executor.

::

    profile ─► system prompt and schemas, in a dialect's words ─► model
                                                                    │ call, in the same words
    executor ◄── canonical tool and arguments ◄── Profile.reading ◄─┘

A checkpoint is trained under one profile and should be served under the same: `Profile.hash` changes with any
word of it and travels with every session.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ostinato.extend import Registry, digests
from ostinato.harness.errors import InvalidArguments
from ostinato.harness.profiles.dialects import CLAUDE, CODEX, MINI, OPENCODE, PI, SHORT
from ostinato.harness.profiles.offers import Offer, Reading, as_it_is
from ostinato.harness.profiles.prompt import SHORT_SYSTEM, SUMMARIZE, SUMMARY, SUMMARY_LINE, SYSTEM, USAGE
from ostinato.harness.tools.definitions import CATALOGUE, TOOLS

ANSWERS = 3
"""The version of the tools' results; raised when the same call gets another result than before."""


class ProfileError(ValueError):
    """No profile has that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A dialect: everything the model reads of the harness before the task.

    >>> PROFILES["claude"].reading("Read", {"file_path": "calc.py"}).arguments
    {'path': 'calc.py'}
    """

    name: str
    offers: tuple[Offer, ...]
    system: str = SYSTEM
    read_before_edit: bool = False
    """True when a file must have been read in the session before `edit` or `write` may change it."""
    summarize: str | None = None
    """The question that makes the model summarise its state when the context is nearly full."""
    hash: str = field(init=False)
    """16 hexadecimal digits, which change with ANSWERS and any word of prompt, schemas and rules."""

    def __post_init__(self) -> None:
        told: list[Any] = [ANSWERS, self.system, list(self.tools)]
        rules: dict[str, Any] = {"read_before_edit": self.read_before_edit, "summarize": self.summarize}
        if self.summarize is not None:
            rules |= {"summary": SUMMARY, "summary_line": SUMMARY_LINE, "usage": USAGE}
        if any(rules.values()):
            told.append(rules)
        if plugins := digests(CATALOGUE, [offer.tool for offer in self.offers]):
            told.append(plugins)
        digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
        object.__setattr__(self, "hash", digest[:16])

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...]:
        """Return the schemas in the order in which they are shown."""
        return tuple(offer.shown for offer in self.offers)

    def offer(self, name: str) -> Offer | None:
        return next((offer for offer in self.offers if offer.name == name), None)

    def reading(self, name: str, arguments: Mapping[str, Any]) -> Reading:
        """Return the canonical reading of a call in this dialect; never raises."""
        offer = self.offer(name)
        try:
            if offer is None:
                names = " ".join(each.name for each in self.offers)
                raise InvalidArguments(f"unknown tool {name}, use {names}")
            return Reading(tool=offer.tool, arguments=offer.read(arguments), reads=offer.reads)
        except InvalidArguments as error:
            return Reading(tool=offer.tool if offer else name, arguments=arguments, error=error)

    def worded(self, name: str, text: str) -> str:
        """Return the error of the tool that the model calls `name`, with the dialect's names of arguments."""
        offer = self.offer(name)
        return offer.worded(text) if offer else text

    def beside(self, offers: Iterable[Offer]) -> "Profile":
        """Return this profile with further tools, under another hash: the model is shown something else."""
        return replace(self, offers=(*self.offers, *offers))


def profile(name: str) -> Profile:
    """Return the profile of that name; raises ProfileError, which lists the known ones."""
    if name not in PROFILES:
        raise ProfileError(f"no profile {name!r}: use one of {', '.join(PROFILES)}")
    return PROFILES[name]


def by_hash(digest: str) -> Profile | None:
    """Return the profile with that hash; None where this version has none."""
    return next((each for each in PROFILES.values() if each.hash == digest), None)


def named_by(trained_under: str) -> str:
    """Return the advice to a person whose model was trained under the harness of that hash."""
    found = by_hash(trained_under)
    advice = f"choose the profile {found.name}" if found else "no profile of this version is like it"
    return f"the model was trained under another harness ({trained_under}): {advice}"


CORE = Profile(name="core", offers=tuple(as_it_is(tool["function"]["name"]) for tool in TOOLS))
"""Seven tools under their canonical names, which the demo trains and serves."""

_OURS: Mapping[str, Profile] = {
    each.name: each
    for each in (
        CORE,
        Profile(name="compact", offers=CORE.offers, summarize=SUMMARIZE),
        Profile(name="full", offers=tuple(as_it_is(name) for name in CATALOGUE), summarize=SUMMARIZE),
        Profile(name="claude", offers=CLAUDE, read_before_edit=True, summarize=SUMMARIZE),
        Profile(name="opencode", offers=OPENCODE, summarize=SUMMARIZE),
        Profile(name="pi", offers=PI, summarize=SUMMARIZE),
        Profile(name="codex", offers=CODEX, summarize=SUMMARIZE),
        Profile(name="mini", offers=MINI),
        Profile(name="short", offers=SHORT, system=SHORT_SYSTEM),
    )
}
PROFILES = Registry("profile", _OURS)
"""The profiles by name: ours, and those of plug-ins."""


def add_profile(added: Profile) -> Profile:
    """Add a profile, which settings and commands then know by its name; return it."""
    return PROFILES.add(added.name, added)
