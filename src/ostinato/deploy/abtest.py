"""The A/B on live traffic: champion against challenger, judged as often as one likes.

Users are the unit that was randomised, so errors are robust to clusters of users, and the intervals form a
confidence sequence, so looking every hour does not raise the rate of false verdicts. What was to be expected
of an observation before the test began, e.g. because of what it was about, is taken out of it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from ostinato.deploy.statistics import (
    Clock,
    Estimate,
    Interval,
    TooFewError,
    clustered_mean,
    minus,
    without_covariate,
)
from ostinato.types import Decision, Verdict

MIN_USERS = 5
"""Per arm; below that no error estimate can be trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One value (a session's reward) from one user on one arm.

    >>> Observation(arm="champion", user="ada", value=1.0).user
    'ada'
    """

    arm: str
    user: str
    value: float
    expected: float = 0.0
    """Something known before the test that goes along with the value; it must not depend on the arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrail:
    """Something that must not rise, whatever the main value does: complaints, latency, broken calls.

    Shown to have risen by more than `limit`: the challenger is rolled back. Risen by more but not shown:
    hold.
    """

    name: str
    observations: Sequence[Observation]
    limit: float


def judge(
    version: int,
    observations: Sequence[Observation],
    *,
    champion: str,
    challenger: str,
    margin: float,
    guardrails: Sequence[Guardrail] = (),
    horizon: int | None = None,
    confidence: float = 0.90,
) -> Verdict:
    """A verdict on the challenger's `version`.

    PROMOTE: shown to lose less than `margin` per session, and no guardrail above its limit. ROLL_BACK:
    shown to lose, or a guardrail shown to be violated. HOLD: neither yet. `horizon` is the number of
    observations at which the intervals are narrowest; settle it before the test, by default it is the
    number at hand.
    """
    clock = Clock(horizon=horizon or max(1, len(observations)), confidence=confidence)
    try:
        effect = _effect(observations, champion, challenger)
        harms = {rail.name: _effect(rail.observations, champion, challenger) for rail in guardrails}
    except TooFewError as error:
        return Verdict(version=version, decision=Decision.HOLD, reason=str(error))
    interval = clock.interval(effect)
    rails = {rail.name: (rail.limit, clock.interval(harms[rail.name])) for rail in guardrails}
    decision, reason = _decide(interval, rails, margin)
    evidence = {
        "difference": asdict(interval),
        "observations": effect.n,
        "users": effect.clusters,
        "margin": margin,
        "horizon": clock.horizon,
        "confidence": confidence,
        "guardrails": {name: {"limit": limit, **asdict(harm)} for name, (limit, harm) in rails.items()},
    }
    return Verdict(version=version, decision=decision, reason=reason, evidence=evidence)


def _effect(observations: Sequence[Observation], champion: str, challenger: str) -> Estimate:
    values = without_covariate([o.value for o in observations], [o.expected for o in observations])
    adjusted = [replace(o, value=value) for o, value in zip(observations, values, strict=True)]
    return minus(_arm(adjusted, challenger), _arm(adjusted, champion))


def _arm(observations: Sequence[Observation], arm: str) -> Estimate:
    mine = [observation for observation in observations if observation.arm == arm]
    users = {observation.user for observation in mine}
    if len(users) < MIN_USERS:
        raise TooFewError(f"arm {arm!r} has {len(users)} users: a verdict needs {MIN_USERS}")
    return clustered_mean([o.value for o in mine], [o.user for o in mine])


def _decide(
    effect: Interval, rails: dict[str, tuple[float, Interval]], margin: float
) -> tuple[Decision, str]:
    shown = f"{effect.estimate:+.3f} per session, in [{effect.low:+.3f}, {effect.high:+.3f}]"
    if violated := [name for name, (limit, harm) in rails.items() if harm.low > limit]:
        return Decision.ROLL_BACK, f"guardrail {', '.join(violated)} violated; {shown}"
    if effect.high < 0:
        return Decision.ROLL_BACK, f"worse: {shown}"
    if effect.low <= -margin:
        return Decision.HOLD, f"not yet shown to lose less than {margin:.3f}: {shown}"
    if doubtful := [name for name, (limit, harm) in rails.items() if harm.estimate > limit]:
        return Decision.HOLD, f"guardrail {', '.join(doubtful)} above its limit; {shown}"
    return Decision.PROMOTE, f"{'better' if effect.low > 0 else 'not worse'}: {shown}"
