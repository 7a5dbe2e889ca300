"""The settings of `ostinato sft`, as its file has them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ostinato.config import ConfigError
from ostinato.harness.agent import HarnessConfig
from ostinato.harness.profiles.profile import PROFILES
from ostinato.loop.config import RunConfig, ScheduleConfig, StartConfig, TeachConfig
from ostinato.loop.placement.config import EnginesConfig
from ostinato.sandbox.config import SandboxConfig
from ostinato.tasks.base import IMPORTED
from ostinato.train.config import SftConfig, TrainerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DemonstrationsConfig:
    """One source of demonstrations: a folder of tasks, or a record of sessions.

    >>> DemonstrationsConfig(tasks=Path("mined")).least_reward
    0.5
    """

    tasks: Path | None = None
    """A Harbor task or a folder of them, whose reference solutions are shown in the harness."""
    foreign: str = IMPORTED
    """The split of tasks that name none: `train` to learn from a foreign dataset."""
    record: str = ""
    """A run folder, a SQLite file or a URL: its solved sessions, and those imported into it."""
    checkpoint: Path | None = None
    """The checkpoint whose tokenizer the record was written with; none takes the run folder's."""
    least_reward: float = 0.5
    """The least reward of a person's session; one without a reward is not taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SftRunConfig:
    """All settings of `ostinato sft`."""

    start: Path
    """The checkpoint to begin with, in Hugging Face layout."""
    sources: Mapping[str, DemonstrationsConfig]
    """The demonstrations by the name of their source."""
    fence: tuple[Path, ...] = ()
    """Folders of tasks that are measured with: what resembles one of them is left out."""
    profiles: tuple[str, ...] = ("core",)
    """The profiles in whose words solutions are shown; sessions with calls of none of them are left out."""
    steps: int = 200
    held_out: float = 0.1
    """The share of each source that is not learnt from: its loss is told before and after."""
    at_once: int = 4
    """Solutions that are shown at the same time."""
    seed: int = 1
    harness: HarnessConfig = HarnessConfig(  # noqa: RUF009 - it is frozen
        max_turns=40, max_tokens=4096, max_context=32_768, command_timeout_s=120.0
    )
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    sft: SftConfig = SftConfig(  # noqa: RUF009
        learning_rate=1e-4, batch=4, induction=0.0, observed=0.0
    )
    trainer: TrainerConfig = field(default_factory=TrainerConfig)

    @property
    def run(self) -> RunConfig:
        """The settings of a run whose only stage teaches, in whose folder the work is done."""
        return RunConfig(
            seed=self.seed,
            sandbox=self.sandbox,
            model=StartConfig(path=self.start),
            engine=EnginesConfig(context=self.harness.max_context),
            harness=self.harness,
            trainer=self.trainer,
            teach=TeachConfig(steps=self.steps, at_once=self.at_once, profiles=self.profiles, sft=self.sft),
            schedule=ScheduleConfig(stages=("teach",)),
        )


def check_sft(config: SftRunConfig) -> None:
    """Raise ConfigError for settings that would be refused after an hour of work."""
    if not config.sources:
        raise ConfigError('sources is empty: add a table such as [sources.mined] with tasks = "mined"')
    for name, source in config.sources.items():
        if (source.tasks is None) == (not source.record):
            raise ConfigError(f"sources.{name}: give either tasks or record")
    if unknown := sorted(set(config.profiles) - set(PROFILES)) or not config.profiles:
        raise ConfigError(f"profiles is {list(config.profiles)} ({unknown}): use {', '.join(PROFILES)}")
    if config.harness.profile not in config.profiles:
        raise ConfigError(
            f"profiles lacks harness.profile, {config.harness.profile!r}: that is the one which is served"
        )
    if config.steps < 1 or not 0 <= config.held_out < 1:
        raise ConfigError("steps is at least 1, and held_out in [0, 1)")
