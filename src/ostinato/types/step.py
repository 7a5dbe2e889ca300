"""The figures of one optimizer step: the line of the learner's journal, and a row of the store."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ostinato.types.codec import to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """The median, the 99th percentile and the largest of some values.

    >>> Percentiles(p50=1.0, p99=3.5, most=4.0).most
    4.0
    """

    p50: float
    p99: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GapFigures:
    """The tokens of a step that were sampled so many versions before it.

    >>> GapFigures(gap=0, tokens=900, mismatch=Percentiles(p50=1e-6, p99=1e-5, most=2e-5), effective=1.0).gap
    0
    """

    gap: int
    """The version of the weights that the step began with, minus the version that sampled the token."""
    tokens: int
    mismatch: Percentiles
    """|log pi - log mu| in nats: the trainer's log-probability and the recorded one."""
    effective: float
    """The effective sample size over the number of tokens, (sum r)^2 / (n sum r^2) with r = pi / mu."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFigures:
    """The groups of one kind of task.

    >>> KindFigures(groups=4, length=310.5, turns=3.2, reward=0.4, best=1.0).groups
    4
    """

    groups: int
    length: float
    """The mean length of their rows in tokens."""
    turns: float
    """The mean number of turns of their rows."""
    reward: float | None = None
    """The mean reward of their sessions; None where it was not read."""
    best: float | None = None
    """The mean over groups of the best reward of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """The figures of the optimizer step that made `version`.

    >>> StepFigures(version=7, loss=0.1, gradient=0.4, rows=80, tokens=900, sessions=80, staleness=1,
    ...             ratio=1.0, cut=0.0, reward=0.5, best=1.0, seconds=30.0, waited=10.0).idle
    0.25
    """

    version: int
    loss: float
    gradient: float
    """The norm of the gradient before it was cut."""
    rows: int
    """Rows that had an advantage, and hence a gradient; `tokens` are their sampled tokens."""
    tokens: int
    sessions: int
    staleness: int
    """How many versions the oldest token of the batch was behind."""
    ratio: float
    """The mean of pi / mu over the tokens with a gradient."""
    cut: float
    """The share of those tokens whose weight the correction bounded or removed."""
    mismatch: Percentiles | None = None
    """|log pi - log mu| of the tokens with a gradient, in nats; None when there was none."""
    effective: float | None = None
    """The effective sample size over the number of tokens, (sum r)^2 / (n sum r^2) with r = pi / mu."""
    gaps: tuple[GapFigures, ...] = ()
    entropy: float | None = None
    """The mean entropy of the trainer's distribution at the sampled tokens, exact, in nats."""
    k1: float | None = None
    """The mean over sessions of the sum over its sampled tokens of log pi - log pi_reference, in nats; None
    when no reference was loaded."""
    routes_recorded: float = 0.0
    """The share of choices of an expert that were recorded, in passes that replayed any."""
    routes_differing: float = 0.0
    """The share of recorded experts that the model would not have chosen itself."""
    routes_replaced: float = 0.0
    """The share of recorded experts that scored too low, so that the model's own choice took their place."""
    reward: float
    """The mean reward of the sessions, as their groups state it: without k1."""
    best: float
    """The mean over groups of the best reward of a group."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """The mean over sessions of each part of the reward; of k1 the part is `k1`."""
    kinds: Mapping[str, KindFigures] = field(default_factory=dict)
    stale_so_far: Mapping[str, KindFigures] = field(default_factory=dict)
    """All groups so far that came too late, by kind: groups that end late are not a fair sample."""
    lengths: Percentiles | None = None
    """Sampled tokens of a session."""
    dropped_so_far: Mapping[str, int] = field(default_factory=dict)
    """All prompts so far that ended untrained, and all turns left out, by reason."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Groups of this batch that were left out since they could not be trained on, by reason."""
    seconds: float
    waited: float
    """Seconds that the learner waited for groups before the step of `seconds`."""

    @property
    def idle(self) -> float:
        """The share of the time in which the learner waited."""
        return self.waited / max(1e-9, self.waited + self.seconds)

    @property
    def tokens_a_second(self) -> float:
        """Trained tokens a second of the step itself, saving and waiting left out."""
        return self.tokens / max(1e-9, self.seconds)

    def flat(self) -> dict[str, float]:
        """Return every figure that is a number under its path, such as `mismatch/p99` or `parts/solved`."""
        found: dict[str, float] = {}
        more = {"idle": self.idle, "tokens_a_second": self.tokens_a_second}
        gaps = {str(gap.gap): to_json(gap) for gap in self.gaps}
        _flatten(to_json(self) | more | {"gaps": gaps}, "", found)
        return found


def _flatten(value: Any, path: str, found: dict[str, float]) -> None:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _flatten(inner, f"{path}/{name}" if path else str(name), found)
    elif value is not None:
        found[path] = float(value)
