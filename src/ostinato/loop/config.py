"""The demo's settings: one file of numbers, each of which two real runs differ in."""

from dataclasses import dataclass, field

from ostinato.config import ConfigError
from ostinato.harness.agent import HarnessConfig
from ostinato.model.config import ModelConfig
from ostinato.rollout.practice import PracticeConfig

CLAIMS = ("better", "cheaper")
"""What an A/B may set out to show: the values of `deploy.abtest.Claim`."""
SPLITS = ("seeds", "names", "pairs", "larger", "families")


@dataclass(frozen=True, slots=True, kw_only=True)
class TeachConfig:
    """Supervised fine-tuning on the teacher's sessions."""

    lessons: int = 700
    demonstrations: int = 4
    steps: int = 1200


@dataclass(frozen=True, slots=True, kw_only=True)
class RefineConfig:
    """The policy gradient in practice."""

    versions: int = 32
    groups: int = 10
    """Groups in one optimizer step, hence in one version."""
    learning_rate: float = 4e-4
    staleness: int = 4
    """A group is dropped when its oldest token is more versions behind than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchConfig:
    """How many held-out tasks a split has, and how often a version that may be deployed does each."""

    seeds: int = 160
    others: int = 40
    passes: int = 2

    def tasks(self, split: str) -> int:
        return self.seeds if split == "seeds" else self.others


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveConfig:
    """The simulated developers and the real-time cycle."""

    developers: int = 80
    sessions_each: int = 4
    versions: int = 4
    learning_rate: float = 2e-4
    """Half of practice's: a reward of one session has no group beside it to compare with."""
    ab_sessions_each: int = 10
    challenger_share: float = 0.5
    gate_margin: float = 0.08
    """The loss of solve rate on held-out tasks with which a candidate must not meet developers."""
    claim: str = "better"
    """What the A/B sets out to show: `better`, or `cheaper` for a candidate that is made to sample less."""
    cheaper_solve_margin: float = 0.03
    """For `cheaper`: the loss of solve rate on held-out tasks that would be too much."""
    cheaper_reward_margin: float = 0.05
    """For `cheaper`: the loss of reward a session that would be too much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoConfig:
    """Everything `ostinato demo` can be told."""

    seed: int = 1
    sandbox: str = "auto"
    """`ns`, `process` (no security boundary), or whichever the probe allows."""
    vocabulary: int = 512
    """Size of the tokenizer: bytes, merges learnt from practice text, and the wire format's skeletons."""
    slots: int = 96
    """Sequences the engine decodes at once."""
    context: int = 768
    model: ModelConfig = field(default_factory=lambda: ModelConfig(vocab_size=0, experts=4, expert_size=128))
    harness: HarnessConfig = field(default_factory=lambda: HarnessConfig(max_context=448))
    teach: TeachConfig = field(default_factory=TeachConfig)
    practice: PracticeConfig = field(default_factory=PracticeConfig)
    refine: RefineConfig = field(default_factory=RefineConfig)
    bench: BenchConfig = field(default_factory=BenchConfig)
    live: LiveConfig = field(default_factory=LiveConfig)


def check(config: DemoConfig) -> None:
    """Raise ConfigError for a batch that never gets full: practice starts no group while `ready_ahead` wait.

    It is a check of the whole, and not of each dataclass, because overrides are applied one after another.
    """
    groups, ahead = config.refine.groups, config.practice.ready_ahead
    if not 1 <= groups <= ahead:
        raise ConfigError(
            f"refine.groups is {groups} and practice.ready_ahead is {ahead}: practice starts no group while "
            f"{ahead} wait, and a step of {groups} would be waited for without end; make refine.groups at "
            "least 1 and at most practice.ready_ahead"
        )
    if config.refine.staleness < 0:
        raise ConfigError(f"refine.staleness is {config.refine.staleness}: make it at least 0")
    _check_live(config.live, config.bench)


def _check_live(live: LiveConfig, bench: BenchConfig) -> None:
    """Raise ConfigError for a trial that would be refused after hours of practice."""
    if live.claim not in CLAIMS:
        raise ConfigError(f"live.claim is {live.claim!r}: it is one of {', '.join(CLAIMS)}")
    if not 0 < live.challenger_share < 1:
        raise ConfigError(f"live.challenger_share is {live.challenger_share}: it lies between 0 and 1")
    if bench.passes < 1:
        raise ConfigError(f"bench.passes is {bench.passes}: make it at least 1")
