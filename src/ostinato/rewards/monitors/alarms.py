"""The alarms: behaviours of a challenger that left the champion's by more than is harmless.

A change must be both unlikely (Holm over all behaviours, so that the chance of any false alarm is `alpha`)
and large: with many sessions everything differs a little. An alarm holds a deployment and names the sessions
that show it best; it is never a reward.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ostinato.rewards.monitors.behaviour import BEHAVIOURS, Observed
from ostinato.rewards.monitors.change import LEAST_HISTORY, Cusum, Resampled, Shift, shift

ALPHA = 0.01
"""The chance of any false alarm in one comparison."""
EXAMPLES = 3
LEAST_PEOPLE = 5
"""People on each side without which nothing is compared: six can be dealt in too few ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A behaviour that changed, and the sessions that show it best.

    >>> Alarm(behaviour="questions", shift=Shift(before=0.1, after=0.6, p=0.0005), sessions=("s1",)).sentence
    'questions went from 0.100 to 0.600 (p = 0.0005), as in s1'
    """

    behaviour: str
    shift: Shift
    sessions: tuple[str, ...]

    @property
    def sentence(self) -> str:
        change = f"{self.shift.before:.3f} to {self.shift.after:.3f} (p = {self.shift.p:.4f})"
        return f"{self.behaviour} went from {change}, as in {', '.join(self.sessions)}"


def alarms(
    before: Sequence[tuple[str, Observed]], after: Sequence[tuple[str, Observed]], *, alpha: float = ALPHA
) -> list[Alarm]:
    """Return the alarms on the sessions `after`, each a (person, session), against those `before`."""
    if min(len({person for person, _ in some}) for some in (before, after)) < LEAST_PEOPLE:
        return []
    shifts = {
        name: shift(
            [(who, of.read(each)) for who, each in before], [(who, of.read(each)) for who, each in after]
        )
        for name, of in BEHAVIOURS.items()
    }
    return [
        Alarm(behaviour=name, shift=shifts[name], sessions=_examples(name, shifts[name].rise, after))
        for name in _holm({name: each.p for name, each in shifts.items()}, alpha)
        if not BEHAVIOURS[name].harmless[0] <= shifts[name].rise <= BEHAVIOURS[name].harmless[1]
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A behaviour that changed over time, with the session from which on it did.

    >>> Drift(behaviour="edits", rises=False, began="s7", at=0.0).rises
    False
    """

    behaviour: str
    rises: bool
    began: str
    """The session with which the change began, as far as the sums tell."""
    at: float
    """Its beginning, in seconds since the epoch."""


def drifts(
    history: Sequence[tuple[str, Observed]], stream: Sequence[tuple[str, Observed]], *, alpha: float = ALPHA
) -> list[Drift]:
    """Return the behaviours that left what was usual in `history` while `stream` went by.

    Both are (person, session), oldest first. The chance of any false one in the whole stream is `alpha`, over
    all behaviours and both directions, where people are alike. Fewer than 20 sessions or 5 people of history
    tell nothing.
    """
    found: list[Drift] = []
    people = [person for person, _ in history]
    if len(history) < LEAST_HISTORY or len(set(people)) < LEAST_PEOPLE or not stream:
        return found
    resampled = Resampled.of(people, horizon=len(stream))
    for name, behaviour in BEHAVIOURS.items():
        past, now = ([behaviour.read(each) for _, each in some] for some in (history, stream))
        for sign in (1.0, -1.0):
            watch = Cusum(
                [sign * value for value in past], resampled, alarm_rate=alpha / (2 * len(BEHAVIOURS))
            )
            sounded = any(watch.add(sign * value) for value in now)
            if sounded and watch.began is not None:
                _, first = stream[watch.began]
                found.append(Drift(behaviour=name, rises=sign > 0, began=first.session_id, at=first.at))
    return found


def _holm(chances: Mapping[str, float], alpha: float) -> list[str]:
    """Return the names that are rejected with a familywise error of `alpha` (Holm 1979)."""
    rejected: list[str] = []
    for rank, name in enumerate(sorted(chances, key=lambda name: chances[name])):
        if chances[name] > alpha / (len(chances) - rank):
            break
        rejected.append(name)
    return rejected


def _examples(name: str, rise: float, after: Sequence[tuple[str, Observed]]) -> tuple[str, ...]:
    """Return the sessions that show a change best: the largest values of a rise, the smallest of a fall."""
    read = BEHAVIOURS[name].read
    ordered = sorted((each for _, each in after), key=lambda each: (read(each), each.at), reverse=rise > 0)
    return tuple(each.session_id for each in ordered[:EXAMPLES])
