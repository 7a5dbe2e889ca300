"""The results of the stages; each is kept in the run folder as JSON and read back checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ostinato.deploy.budget import UNNAMED
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
class PutBack:
    """The version that a cycle begins with, after the late facts on earlier promotions."""

    version: int
    demoted: tuple[int, ...]
    """The promoted versions that are served no more; empty when the champion stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """The live sessions that the champion served before a collection, and the signals on them."""

    version: int
    sessions: int
    signals: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The gate's decision, with the id and the error level of the A/B test that it may admit to."""

    decision: Decision
    reason: str
    experiment: str
    alpha: float
    chain: str = UNNAMED
    """The chain of the budget that `alpha` comes from; results of older runs name none."""


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
class Judged:
    """The judgement of a candidate. One not admitted has no shadow; one refused there meets nobody."""

    benched: Measured
    admission: Admission
    shadowed: Shadowed | None
    tested: Tested | None

    @property
    def last(self) -> Admission | Shadowed | Tested:
        """The step that it came to."""
        return self.tested or self.shadowed or self.admission

    @property
    def decision(self) -> Decision:
        return self.last.decision

    @property
    def reason(self) -> str:
        return self.last.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycled:
    """One whole cycle; `judged` is None when there was no candidate: no session could be learnt from."""

    lived: Lived
    collected: Harvest
    candidate: int
    champion: int
    """The version that is served at the end."""
    engine: Counters
    """The counters of the engine that served the champion."""
    judged: Judged | None
    hold_out: str
    """The newest champion against the first version, on people whom no trial meets; empty without such."""
    hold_out_tasks: str = ""
    """The version that this cycle promoted against the first one, on tasks that no gate sees; empty without
    a promotion or such tasks."""
    ended_at: float
    """The time in seconds since the epoch, from which on sessions are for the next cycle."""
    put_back: tuple[int, ...] = ()
    """The versions of earlier promotions that late facts took back before this cycle."""

    @property
    def decision(self) -> Decision:
        return Decision.HOLD if self.judged is None else self.judged.decision

    @property
    def reason(self) -> str:
        return "no session could be learnt from" if self.judged is None else self.judged.reason

    @property
    def engines(self) -> Mapping[str, Counters]:
        """The counters of every engine of the cycle."""
        engines = {"champion": self.engine}
        if self.judged is not None:
            engines["gate"] = self.judged.benched.engine
        if self.judged is not None and self.judged.tested is not None:
            engines["challenger"] = self.judged.tested.engine
        return engines


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
    cycles: tuple[Cycled, ...]
    integrity: Integrity
