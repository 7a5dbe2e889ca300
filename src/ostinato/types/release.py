"""The release: scores of a version, the decision about it, and its share of the traffic."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ostinato.types.ids import new_id

HOLD_OUT = "hold-out"
"""The experiment of the arms whose users meet no trial. Their shares are of all users, and those of the other
arms are of the rest."""
WITHIN = re.compile(r"@(?:session|(?P<hours>[1-9]\d*)h)\.\w+$")
"""The end of the name of an experiment whose people meet both arms: what is dealt to an arm, and a secret, so
that nobody can tell which arm comes next."""


def unit_of(experiment: str, user: str, session: str, at: float) -> str:
    """Return what an experiment deals to an arm, for a session that begins `at`, in seconds since the epoch.

    It is the user, unless the experiment's name says otherwise: then the session, or the user's block of
    hours.

    >>> unit_of("trial-of-7@4h.1f", "ada", "s1", 4 * 3600.0)
    'ada/1'
    """
    within = WITHIN.search(experiment)
    if within is None:
        return user
    return f"{user}/{int(at // (3600 * int(within['hours'])))}" if within["hours"] else f"{user}/{session}"


PRIMARY = "seeds"
"""The split of held-out tasks that the gate judges by itself; the others it judges by their mean."""


def by_weight(splits: Iterable[str]) -> list[str]:
    """Return splits in the gate's order: the one that decides, which is `PRIMARY` or else the first by name.

    >>> by_weight(["larger", "families", "seeds"])
    ['seeds', 'families', 'larger']
    """
    return sorted(splits, key=lambda split: (split != PRIMARY, split))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A version and its share of traffic.

    >>> Arm(name="champion", version=40, share=0.5, engines=("http://127.0.0.1:9001",)).share
    0.5
    """

    name: str
    version: int
    share: float
    """Fraction of users in [0, 1]; 0 for an arm that is reached only by a pinned key."""
    engines: tuple[str, ...]
    """Addresses of the engines that serve it, each the same version; () before one is started."""
    experiment: str = ""
    """Id of the trial it belongs to; each trial assigns users to arms anew."""

    def __post_init__(self) -> None:
        if wrong := [
            url for url in self.engines if not url.startswith(("http://", "https://")) or " " in url
        ]:
            raise ValueError(f"arm {self.name!r}: {wrong[0]!r} is no address of an engine: http://HOST:PORT")
        if len(set(self.engines)) < len(self.engines):
            raise ValueError(f"arm {self.name!r} names an engine twice")


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A proportion with its 95 % Wilson interval.

    >>> Score(solve=0.5, n=2, low=0.09, high=0.91).solve
    0.5
    """

    solve: float
    n: int
    low: float
    high: float
    k: int = 1
    """The passes over each task."""
    best: float | None = None
    """The share of tasks that one of `k` passes solves (pass@k); None with a single pass."""

    @property
    def words(self) -> str:
        """Return the score as people read it, without its interval.

        >>> Score(solve=0.5, n=2, low=0.09, high=0.91, k=2, best=0.75).words
        '50% (best of 2: 75%) of 2'
        """
        beside = "" if self.best is None else f" (best of {self.k}: {self.best:.0%})"
        return f"{self.solve:.0%}{beside} of {self.n}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The scores of a version on held-out tasks, by split.

    >>> Report(version=7, scores={"seeds": Score(solve=0.5, n=2, low=0.09, high=0.91)}).scores["seeds"].n
    2
    """

    version: int
    scores: Mapping[str, Score]
    rates: Mapping[str, float] = field(default_factory=dict)
    """Behaviour beside the score: mean turns; shares that tampered, were forgeable, asked, ran tests, broke a
    call.
    """
    harness: str = ""
    """Hash of the harness it was measured under; scores under different harnesses are not compared."""
    id: str = field(default_factory=new_id)


class Decision(StrEnum):
    """The possible decisions about a candidate. Admission to a test with developers is not promotion, and a
    promotion is provisional until its outcomes are known."""

    PROMOTE = "promote"  # shown to be better
    PROMOTE_CHEAPER = "promote_cheaper"  # shown to be cheaper, and no worse by more than a margin
    ADMIT = "admit"  # may meet developers in an A/B trial
    HOLD = "hold"  # no decision: the evidence is missing, cannot be trusted, or raises an alarm
    INCONCLUSIVE = "inconclusive"  # a trial came to its planned end and showed nothing
    ROLL_BACK = "roll_back"
    CONFIRM = "confirm"  # a promotion stays: its outcomes are shown to be no worse
    DEMOTE = "demote"  # a promotion is taken back by its outcomes

    @property
    def promotes(self) -> bool:
        return self in {Decision.PROMOTE, Decision.PROMOTE_CHEAPER}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A decision about a version, with its reason and evidence.

    >>> Verdict(version=7, decision=Decision.HOLD, reason="too few sessions", id="d1").decision.promotes
    False
    """

    version: int
    decision: Decision
    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    id: str = field(default_factory=new_id)
