"""A trial within people: each meets both versions, in blocks of hours or sessions that are dealt at random.

A team of twenty differs more among itself than two versions do, so twenty people on two arms show nothing.
Whoever meets both is compared with themselves. What is tested is the mean over people of the difference
between their mean session with the challenger and with the champion. A person with a and b sessions on the
arms weighs h / (1 + h · `DIFFER`), where h = a b / (a + b): a difference of few sessions is unsure, and
nobody decides alone. The error is the leave-one-person-out jackknife's with Satterthwaite's degrees of
freedom (`statistics.clustered`), which asks nothing of how sessions of one person depend on each other.
Shocks that all people share at one time (an outage, a deadline) hit both arms, since blocks are dealt to each
person apart. `benchmarks.teams` has the coverage at 5, 10, 20 and 50 people.

A version may leave something behind, such as a broken tree, that the other one is then blamed for. So the
sessions that directly follow one on the other arm are compared with the rest: where the difference between
the arms is not the same in both, nothing is promoted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ostinato.deploy.statistics import Estimate, Floats, Interval, clustered, interval, sample_ratio

DIFFER = 0.2
"""The assumed variance of the true differences between people, in variances of a session. It decides how wide
the intervals are, not whether they hold."""
MIN_PEOPLE = 5
"""The fewest people who met both arms; with fewer, no error estimate can be trusted."""
CARRY = 0.05
"""The chance that a carry-over is seen where there is none."""
VOID = 100.0
"""The Bayes factor against the set share above which the sizes of the arms void a trial.
At most 1 in 100 sound trials exceeds it."""


def within(counts: Floats, sums: Floats, *, by_session: bool = False, scale: float = 1.0) -> Estimate:
    """Return challenger minus `scale` times champion, from the sessions of each person on both arms.

    `counts` and `sums`, (..., people, 2), are the number of sessions and the sum of their values, champion
    first. Somebody who met one arm alone says nothing. With `by_session` people weigh h, as they worked.
    """
    ours, theirs = counts[..., 0], counts[..., 1]
    both = (ours > 0) & (theirs > 0)
    means = sums / np.where(counts > 0, counts, 1.0)
    alike = np.where(both, ours * theirs / np.where(both, ours + theirs, 1.0), 0.0)
    weights = alike if by_session else alike / (1 + alike * DIFFER)
    return clustered(weights * (means[..., 1] - scale * means[..., 0]), weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """The sessions of a trial within people, in the order of their time.

    >>> Met(people=["ada", "ada"], challenger=[False, True], units=["ada/1", "ada/2"]).both
    1
    """

    people: Sequence[str]
    """The person of each session."""
    challenger: Sequence[bool]
    """True where the session met the challenger."""
    units: Sequence[str]
    """The unit that was dealt to an arm: the block of each session, or itself (`types.release.unit_of`)."""

    @property
    def both(self) -> int:
        """The number of people who met both arms."""
        return len(self._on(True) & self._on(False))

    def users(self, champion: str, challenger: str) -> dict[str, int]:
        """Return the number of people on each arm."""
        return {champion: len(self._on(False)), challenger: len(self._on(True))}

    def unsound(self, share: float) -> tuple[str, str]:
        """Return why the trial is void and why it is too small, "" where it is not."""
        arm_of: dict[str, bool] = {}
        dealt = zip(self.units, self.challenger, strict=True)
        mixed = sorted({unit for unit, arm in dealt if arm_of.setdefault(unit, arm) != arm})
        challengers = sum(arm_of.values())
        void = ""
        if mixed:
            void = f"{len(mixed)} blocks met both arms, {mixed[0]!r} is one: a block must stay on one arm"
        elif sample_ratio(challengers, len(arm_of), share) > VOID:
            void = (
                f"{challengers} of {len(arm_of)} blocks or sessions are on the challenger where a share of "
                f"{share:g} was set: find out which were lost before trying again"
            )
        few = f"too few people met both arms, {self.both}: a verdict needs {MIN_PEOPLE}"
        return void, few if self.both < MIN_PEOPLE else ""

    def paired(self, values: Sequence[float], *, by_session: bool = False, scale: float = 1.0) -> Estimate:
        """Return challenger minus `scale` times champion, from one value of each session (`within`)."""
        counts, sums = self._by_person([int(arm) for arm in self.challenger], values, 2)
        return within(counts, sums, by_session=by_session, scale=scale)

    def carried_over(self, values: Sequence[float]) -> Interval:
        """Return how much larger the difference between the arms is directly after a change of arms than
        otherwise, between bounds that leave out the truth with chance `CARRY`.

        It is endless where fewer than `MIN_PEOPLE` have all four kinds of sessions.
        """
        last: dict[str, bool] = {}
        kinds = []
        for person, arm in zip(self.people, self.challenger, strict=True):
            kinds.append(int(arm) + (2 if last.get(person, arm) != arm else 0))
            last[person] = arm
        counts, sums = self._by_person(kinds, values, 4)
        known = (counts > 0).all(axis=1)
        if known.sum() < MIN_PEOPLE:
            return Interval(estimate=0.0, low=-np.inf, high=np.inf)
        means, weights = sums[known] / counts[known], 1 / (1 / counts[known]).sum(axis=1)
        changes = (means[:, 3] - means[:, 2]) - (means[:, 1] - means[:, 0])
        return interval(clustered(weights * changes, weights), CARRY / 2)

    def _on(self, met: bool) -> set[str]:
        return {person for person, arm in zip(self.people, self.challenger, strict=True) if arm is met}

    def _by_person(self, kinds: Sequence[int], values: Sequence[float], n: int) -> tuple[Floats, Floats]:
        """Return the number and the sum of the values, (people, n), by person and kind of session."""
        number: dict[str, int] = {}
        rows = [number.setdefault(person, len(number)) for person in self.people]
        counts, sums = np.zeros((len(number), n)), np.zeros((len(number), n))
        np.add.at(counts, (rows, kinds), 1.0)
        np.add.at(sums, (rows, kinds), values)
        return counts, sums
