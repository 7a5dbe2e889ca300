"""The results of the stages; each is kept in the run folder as JSON and read back checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ostinato.deploy.outcomes import Measurement
from ostinato.rollout.collect import Harvest
from ostinato.types import Decision, Score

Counters = Mapping[str, int | float]
"""The counts of an engine: swaps, failed requests, digest mismatches and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The newest version after a stage that may have published one."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One version on the held-out tasks, and the counters of the engine that served it."""

    measurement: Measurement
    engine: Counters

    @property
    def scores(self) -> Mapping[str, Score]:
        return self.measurement.report.scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What a run claims, measured on sealed tasks."""

    claim: str
    number: int
    """The openings of sealed tasks on this record up to this one."""
    first: int
    newest: int
    """The versions that are compared."""
    tasks: int
    changes: Mapping[str, tuple[float, ...]]
    """The change of the solve rate by split, with its 95 % interval: estimate, low, high."""
    headline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Taught:
    """The lessons of the scripted teacher."""

    sessions: int
    void: int
    """Attempts that a failure of ours spoilt."""
    left_out: int
    """Demonstrations of which every attempt was spoilt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Practised:
    """The last version of practice, and the sessions that it took."""

    version: int
    sessions: int
    void: int
    """Attempts that came to nothing and were followed by another: a failure of ours spoilt them, or a restart
    cut them off."""
    untrainable: int
    """Turns that could not be trained on."""
    root: str
    """The digest of the weights, of what became of every prompt, and of the rewards: two synchronous runs of
    the same settings have the same one."""
    engine: Counters


@dataclass(frozen=True, slots=True, kw_only=True)
class Champion:
    """The version that is served, and the measurement of its weights that candidates are compared with."""

    version: int
    measured: Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """The beginning of a cycle."""

    at: float
    """In seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The weights that a cycle trains on: the champion's, published again where others came after them."""

    champion: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """The live sessions since the cycle before that had ended at a collection, and the signals on them."""

    sessions: int
    signals: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The gate's decision, with the id of the A/B test that it may admit to."""

    decision: Decision
    reason: str
    experiment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSummary:
    """The figures of one arm of an A/B test."""

    version: int
    sessions: int
    users: int
    mean_reward: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadowed:
    """The shadow of a candidate: what it did with recorded requests, out of anybody's sight."""

    decision: Decision
    reason: str
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """The verdict of a release with its evidence."""

    decision: Decision
    reason: str
    steps: tuple[str, ...]
    """The steps that it entered: canary, ramp, split, over."""
    arms: Mapping[str, ArmSummary]
    evidence: Mapping[str, Any]
    engine: Counters
    """The counters of the engine that served the challenger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTrial:
    """The terms of a trial that are settled when it begins, so that a kill takes no second level."""

    candidate: int
    champion: int
    """The version that people meet beside it."""
    experiment: str
    alpha: float
    chain: str
    """The chain of the budget that `alpha` comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One whole trial: a candidate that is refused in its shadow, or by a word, meets nobody."""

    opened: OpenedTrial
    shadowed: Shadowed | None
    tested: Tested | None
    decision: Decision
    reason: str
    hold_out_tasks: str
    """The version that it promoted against the first one, on tasks that no gate sees; empty without a
    promotion or such tasks."""

    @property
    def met(self) -> bool:
        return self.tested is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The judgement of the gate on a candidate."""

    benched: Measured
    admission: Admission


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycled:
    """One whole cycle, from the live sessions to the gate's decision; `judged` is None when there was no
    candidate: no session could be learnt from."""

    began_at: float
    lived: Lived
    collected: Harvest
    base: Base
    candidate: int
    judged: Judged | None
    refused: str
    """Why an admitted candidate does not go to people all the same: a word, or another champion since."""
    hold_out: str
    """The newest champion against the first version, on people whom no trial meets; empty without such."""
    ended_at: float
    """The time of the gate's decision, in seconds since the epoch."""

    @property
    def decision(self) -> Decision:
        if self.judged is None or self.refused:
            return Decision.HOLD
        return self.judged.admission.decision

    @property
    def reason(self) -> str:
        if self.judged is None:
            return "no session could be learnt from"
        return self.refused or self.judged.admission.reason

    @property
    def hours(self) -> float:
        """The hours from the beginning of the collection to the gate's decision."""
        return (self.ended_at - self.began_at) / 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """The end of the cycles and of the trials beside them: who is served, by engines that counted this."""

    version: int
    engine: Counters
    """The sum over the engines that served the champion, one after another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned:
    """The cycles of a run, and the trials that went on beside them."""

    cycles: tuple[Cycled, ...]
    trials: tuple[Tried, ...]
    served: Deployed

    @property
    def engines(self) -> list[Counters]:
        """The counters of every engine, each once."""
        gates = [cycle.judged.benched.engine for cycle in self.cycles if cycle.judged is not None]
        challengers = [trial.tested.engine for trial in self.trials if trial.tested is not None]
        return [self.served.engine, *gates, *challengers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Integrity:
    """All but `swaps` and the turns by state must be zero."""

    turns_unaccounted: int
    prompts_unended: int
    prompts_trained_twice: int
    digest_mismatches: int
    requests_failed_by_swap: int
    """Every failed request of every engine: an upper bound."""
    swaps: int
    turns_by_state: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The results of a run, from which its report is written; None for a stage that is not listed."""

    seed: int
    resumed: bool
    seconds: Mapping[str, float]
    """The time that each stage took, by its name; one with a slash in its name is part of another."""
    cpu_s: float
    taught: Taught | None
    before: Measured | None
    practised: Practised | None
    after: Measured | None
    elsewhere: Mapping[str, Measured]
    """The measurements of `before` and `after` under further profiles, by stage: `after-codex`."""
    turned: Turned | None
    integrity: Integrity
    claimed: Claimed | None = None
