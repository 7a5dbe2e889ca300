"""The settings of the demo: those of the loop, and of its teacher, practice and simulated developers."""

from dataclasses import dataclass, field

from ostinato.config import ConfigError
from ostinato.harness.agent import HarnessConfig
from ostinato.loop import config as loop
from ostinato.model.config import ModelConfig
from ostinato.rollout.practice import PracticeConfig
from ostinato.train.config import LearnerConfig

SPLITS = ("seeds", "names", "pairs", "larger", "families")


@dataclass(frozen=True, slots=True, kw_only=True)
class TeachConfig:
    """Supervised fine-tuning on the teacher's sessions."""

    lessons: int = 700
    demonstrations: int = 4
    steps: int = 1200


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoBenchConfig(loop.BenchConfig):
    """The number of held-out tasks in a split, and how often each is done."""

    seeds: int = 160
    others: int = 40

    def tasks(self, split: str) -> int:
        return self.seeds if split == "seeds" else self.others


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveConfig(loop.CycleConfig):
    """The simulated developers and the cycle that learns from them."""

    developers: int = 80
    sessions_each: int = 4
    ab_sessions_each: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoConfig(loop.LoopConfig):
    """All settings of `ostinato demo`."""

    seed: int = 1
    vocabulary: int = 512
    """Size of the tokenizer: bytes, merges learnt from practice text, and the wire format's skeletons."""
    model: ModelConfig = field(default_factory=lambda: ModelConfig(vocab_size=0, experts=4, expert_size=128))
    harness: HarnessConfig = field(default_factory=lambda: HarnessConfig(max_context=448))
    teach: TeachConfig = field(default_factory=TeachConfig)
    refine: LearnerConfig = field(default_factory=lambda: LearnerConfig(versions=32))
    practice: PracticeConfig = field(default_factory=PracticeConfig)
    bench: DemoBenchConfig = field(default_factory=DemoBenchConfig)
    live: LiveConfig = field(default_factory=LiveConfig)


def check(config: DemoConfig) -> None:
    """Raise ConfigError for a batch that never gets full, and where `loop.config.check` does."""
    groups, ahead = config.refine.groups, config.practice.ready_ahead
    if not 1 <= groups <= ahead:
        raise ConfigError(
            f"refine.groups is {groups} and practice.ready_ahead is {ahead}: practice starts no group while "
            f"{ahead} wait, and a step of {groups} would be waited for without end; make refine.groups at "
            "least 1 and at most practice.ready_ahead"
        )
    if config.refine.versions is None or config.refine.spread:
        raise ConfigError("practice ends at refine.versions: make it a number, and leave refine.spread false")
    loop.check(config)
