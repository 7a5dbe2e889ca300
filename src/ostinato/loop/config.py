"""The settings of the loop; each is one that two real runs differ in."""

from dataclasses import dataclass, field

from ostinato.config import ConfigError
from ostinato.harness.agent import HarnessConfig
from ostinato.train.config import LearnerConfig

CLAIMS = ("better", "cheaper")
"""The claims that an A/B test may set out to show: the values of `deploy.abtest.Claim`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleConfig:
    """One cycle on live traffic: how a candidate is trained, admitted and tested."""

    versions: int = 4
    learning_rate: float = 2e-4
    """Half of practice's: a reward of one session has no group beside it to compare with."""
    challenger_share: float = 0.5
    gate_margin: float = 0.08
    """The loss of solve rate on held-out tasks with which a candidate must not meet developers."""
    claim: str = "better"
    """The claim of the A/B test: `better`, or `cheaper` for a candidate that is made to sample less."""
    cheaper_solve_margin: float = 0.03
    """The loss of solve rate on held-out tasks that would be too much for `cheaper`."""
    cheaper_reward_margin: float = 0.05
    """The loss of reward a session that would be too much for `cheaper`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchConfig:
    """The benchmark: a version that may be deployed does each held-out task in so many passes."""

    passes: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig:
    """The settings that every run has, with simulated developers or with people."""

    sandbox: str = "auto"
    """`ns`, `process` (no security boundary), or whichever the probe allows."""
    slots: int = 96
    """Sequences the engine decodes at once."""
    context: int = 768
    """Tokens of prompt and completion together that the engine has room for."""
    harness: HarnessConfig = field(default_factory=HarnessConfig)
    refine: LearnerConfig = field(default_factory=LearnerConfig)
    """The policy gradient in practice; the live cycle has its own versions and learning rate."""
    bench: BenchConfig = field(default_factory=BenchConfig)
    live: CycleConfig = field(default_factory=CycleConfig)


def check(config: LoopConfig) -> None:
    """Raise ConfigError for a trial that would be refused after hours of training.

    It is a check of the whole, and not of each dataclass, because overrides are applied one after another.
    """
    live, passes = config.live, config.bench.passes
    if live.claim not in CLAIMS:
        raise ConfigError(f"live.claim is {live.claim!r}: it is one of {', '.join(CLAIMS)}")
    if not 0 < live.challenger_share < 1:
        raise ConfigError(f"live.challenger_share is {live.challenger_share}: it lies between 0 and 1")
    if passes < 1:
        raise ConfigError(f"bench.passes is {passes}: make it at least 1")
