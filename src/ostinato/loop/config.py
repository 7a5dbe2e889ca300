"""The settings of a run, as its file has them; each is one that two real runs differ in."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from ostinato import tasks
from ostinato.bench.suite import SuiteError, open_suite
from ostinato.config import ConfigError
from ostinato.harness.agent import HarnessConfig
from ostinato.harness.profiles.profile import PROFILES, profile
from ostinato.loop.placement.config import PlacementConfig
from ostinato.model.config import ModelConfig
from ostinato.rewards.live.definition import LIVE, LiveDefinition, read_definition
from ostinato.rewards.practice.definition import PRACTICE, PracticeDefinition, read_practice_definition
from ostinato.rollout.config import PracticeConfig
from ostinato.store.config import StoreConfig
from ostinato.tasks.base import IMPORTED, TaskError
from ostinato.tasks.packed import SUFFIX as PACKED
from ostinato.tasks.packed import PackedSource
from ostinato.tasks.pebble import SPLITS, PebbleSource
from ostinato.tasks.source import TRAIN, FolderSource, SourceError, TaskSource, mixture
from ostinato.train.config import LearnerConfig, SftConfig, TrainerConfig

CLAIMS = ("better", "cheaper")
"""The claims that an A/B test may set out to show: the values of `deploy.abtest.Claim`."""
STAGES = ("teach", "before", "practice", "after", "cycle")
"""The stages that a file may list, in the order in which they run."""
PEOPLE: Literal["people"] = "people"
"""The value of `live.developers` for real traffic."""
HELD_OUT = tuple(split for split in SPLITS if split != TRAIN)
"""The held-out splits of the pebbles."""
PEBBLES, EXAMPLE = "pebbles", "example"
"""The sources that need no path: generated problems, and a few tasks mined from a small repository."""
EXAMPLE_TASKS = Path(tasks.__file__).with_name("example.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartConfig:
    """The model that a run begins with: a checkpoint, or random weights of our own decoder."""

    path: Path | None = None
    """A checkpoint directory in Hugging Face layout; without one the next two settings make the model."""
    vocabulary: int = 512
    """Size of the tokenizer: bytes, merges learnt from practice text, and the wire format's skeletons."""
    shape: ModelConfig = field(default_factory=lambda: ModelConfig(vocab_size=0, experts=4, expert_size=128))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginesConfig:
    """The engines that serve the versions of a run."""

    backend: Literal["auto", "embedded", "vllm"] = "auto"
    """`auto` takes the embedded engine for a shape that it knows, else vLLM."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """The type that vLLM computes in; `auto` takes bfloat16 where the hardware has it (`ostinato doctor`)."""
    tensor_parallel: int = 1
    """vLLM's workers that share each layer."""
    arguments: tuple[str, ...] = ()
    """Further arguments for vLLM, such as `--gpu-memory-utilization=0.8`."""
    python: str | None = None
    """The interpreter that has vLLM; none takes the one that runs this."""
    slots: int = 96
    """Sequences that an engine decodes at once."""
    context: int = 768
    """Tokens of prompt and completion together that an engine has room for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """One source of tasks."""

    path: Path | None = None
    """A Harbor task, a folder of them, or a packed dataset (`.jsonl`)."""
    kinds: Mapping[str, float] = field(default_factory=dict)
    """The shares of the kinds of generated pebbles; without any, the five kinds of the demo."""
    weight: float = 1.0
    """The share of draws beside the weights of the other sources."""
    foreign: str = IMPORTED
    """The split of tasks that name none: `train` to practise on a foreign dataset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksConfig:
    """The tasks of a run, of which training sees only the split `train`."""

    sources: Mapping[str, SourceConfig] = field(default_factory=lambda: {"pebbles": SourceConfig()})
    """The sources by name; a file that names any lists them all."""
    held_out: Mapping[str, int] = field(
        default_factory=lambda: {"seeds": 160, "names": 40, "pairs": 40, "larger": 40, "families": 40}
    )
    """The number of held-out tasks in each split that the benchmark measures."""


def sources(config: TasksConfig) -> TaskSource:
    """Return the mixture of a run's sources; reads their folders. Raises TaskError and SourceError."""
    parts: dict[str, tuple[TaskSource, float]] = {}
    for name, each in config.sources.items():
        source: TaskSource = PebbleSource(each.kinds) if each.kinds else PebbleSource()
        path = EXAMPLE_TASKS if each.path is None and name == EXAMPLE else each.path
        if each.kinds and name != PEBBLES:
            raise SourceError(f"tasks.sources.{name} has kinds: {PEBBLES} alone are generated by kind")
        if path is not None:
            packed = path.suffix == PACKED
            source = PackedSource(path) if packed else FolderSource(path, foreign=each.foreign)
        elif name != PEBBLES:
            raise SourceError(f"tasks.sources.{name} has no path: {PEBBLES} and {EXAMPLE} alone need none")
        parts[name] = (source, each.weight)
    return mixture(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TeachConfig:
    """Supervised fine-tuning on the scripted teacher's sessions."""

    lessons: int = 700
    demonstrations: int = 4
    steps: int = 1200
    at_once: int = 4
    """Lessons that are given at the same time."""
    profiles: tuple[str, ...] = ()
    """The profiles in whose words the demonstrations of a task are given, in turn; without any
    `harness.profile`."""
    sft: SftConfig = field(default_factory=SftConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchConfig:
    """The benchmark of a version on the held-out tasks."""

    passes: int = 2
    """The passes over each task of a version that may be deployed; `before` needs one."""
    at_once: int = 48
    """Sessions at the same time."""
    profiles: tuple[str, ...] = ()
    """Further profiles under which `before` and `after` are measured as well, to see what it would cost to
    serve a version elsewhere."""
    frozen: float = 0.0
    """The share of the held-out tasks that no gate sees: each promoted version is compared with the first one
    on them."""
    gate_share: float = 1.0
    """The share of the other tasks that a gate draws; below 1 each draws anew, and the champion does them
    too."""
    suite: Path | None = None
    """A sealed suite that the gate reads, on all its splits and axes, beside the held-out tasks."""
    suite_passes: int = 2
    """The passes over each task of the suite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveConfig:
    """The live traffic, and one cycle on it: how a candidate is trained, admitted and tested."""

    developers: int | Literal["people"] = 80
    """The number of simulated developers, or `people` for the sessions that people bring by themselves."""
    port: int = 0
    """The port of the gateway while the run is open, for `people`; 0 takes a free one."""
    sessions: int = 320
    """The sessions of all developers together that a cycle learns from."""
    ab_sessions: int = 800
    """The sessions of all developers together after which an A/B test is judged."""
    versions: int = 4
    person_share: float = 0.02
    """The largest part of a batch's weight that one person has, however many sessions they bring; twice an
    equal part where people are few."""
    learning_rate: float = 2e-4
    """Half of practice's: a reward of one session has no group beside it to compare with."""
    shadow_requests: int = 40
    """The recorded requests that a candidate answers, out of anybody's sight, before it meets a person; 0 for
    none."""
    canary_share: float = 0.1
    """The share of users who are the first to meet a candidate."""
    canary_sessions: int = 80
    """The sessions of all users after which the canary is over, and each step of the ramp; 0 for no step
    before the A/B test."""
    ramp: tuple[float, ...] = ()
    """The wider shares between the canary and the A/B test."""
    hold_out: float = 0.0
    """The share of users whom no trial meets: half of them stay on the first version, half get the newest,
    and the sum of all promotions is judged on them. It takes an engine more."""
    challenger_share: float = 0.5
    gate_margin: float = 0.08
    """The loss of solve rate on held-out tasks with which a candidate must not meet developers."""
    reward: Path | None = None
    """A TOML file with the definition of the live reward; none takes the one that ships."""
    judge: str = ""
    """An OpenAI-compatible address whose model reads people's follow-ups; empty takes the rules and the small
    classifier that ship. Its key is in OSTINATO_JUDGE_KEY."""
    judge_model: str = ""
    """The name of the model at `judge`."""
    claim: str = "better"
    """The claim of the A/B test: `better`, or `cheaper` for a candidate that is made to sample less."""
    cheaper_solve_margin: float = 0.03
    """The loss of solve rate on held-out tasks that would be too much for `cheaper`."""
    cheaper_reward_margin: float = 0.05
    """The loss of reward a session that would be too much for `cheaper`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleConfig:
    """The stages of a run, and the number of cycles in the last of them."""

    stages: tuple[str, ...] = STAGES
    """The stages in the order in which they run: some of `teach`, `before`, `practice`, `after`, `cycle`."""
    cycles: int = 1
    every_s: float = 0.0
    """The least seconds from the end of a cycle to the next collection; the champion serves all the while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """All settings of `ostinato run`."""

    seed: int = 1
    sandbox: str = "auto"
    """`ns`, `process` (no security boundary), or whichever the probe allows."""
    model: StartConfig = field(default_factory=StartConfig)
    engine: EnginesConfig = field(default_factory=EnginesConfig)
    tasks: TasksConfig = field(default_factory=TasksConfig)
    harness: HarnessConfig = field(default_factory=HarnessConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    teach: TeachConfig = field(default_factory=TeachConfig)
    practice: PracticeConfig = field(default_factory=PracticeConfig)
    refine: LearnerConfig = field(default_factory=lambda: LearnerConfig(versions=32))
    """The policy gradient in practice; the live cycle has its own versions and learning rate."""
    bench: BenchConfig = field(default_factory=BenchConfig)
    live: LiveConfig = field(default_factory=LiveConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    placement: PlacementConfig = field(default_factory=PlacementConfig)
    store: StoreConfig = field(default_factory=StoreConfig)


def taught_profiles(config: RunConfig) -> tuple[str, ...]:
    """Return the profiles that the model learns the words of."""
    return config.teach.profiles or (config.harness.profile,)


def practice_definition(practice: PracticeConfig) -> PracticeDefinition:
    """Return the definition of practice's reward. Raises ConfigError for one that cannot be used."""
    return PRACTICE if practice.reward is None else read_practice_definition(practice.reward)


def live_definition(live: LiveConfig) -> LiveDefinition:
    """Return the definition of the live reward. Raises ConfigError for one that cannot be used."""
    return LIVE if live.reward is None else read_definition(live.reward)


FIXED = {each.name for each in fields(RunConfig)} - {"sandbox", "engine", "schedule", "placement"}
"""The settings and tables that must not change while a run is under way; `live` may between two cycles."""


def check(config: RunConfig) -> None:
    """Raise ConfigError for settings that would be refused, or waited for without end, after hours of work.

    It is a check of the whole, and not of each dataclass, because overrides are applied one after another.
    """
    _check_stages(config)
    _check_tasks(config)
    _check_practice(config)
    _check_live(config.live)
    _check_profiles(config)
    after = config.harness.summarize_after
    if after is not None and (after < 1 or profile(config.harness.profile).summarize is None):
        raise ConfigError(
            f"harness.summarize_after is {after} and harness.profile {config.harness.profile!r}: make it at "
            "least 1, in a profile that summarises, such as compact"
        )
    if config.harness.max_context > config.engine.context:
        raise ConfigError(
            f"harness.max_context is {config.harness.max_context} and engine.context "
            f"{config.engine.context}: an engine needs room for the longest turn"
        )
    if config.bench.passes < 1 or config.bench.suite_passes < 1:
        passes = config.bench.passes, config.bench.suite_passes
        raise ConfigError(f"bench.passes and bench.suite_passes are {passes}: make both at least 1")
    if not 0 <= config.bench.frozen < 1 or not 0 < config.bench.gate_share <= 1:
        raise ConfigError("bench.frozen lies in [0, 1), and bench.gate_share in (0, 1]")
    if config.bench.suite is not None:
        try:
            open_suite(config.bench.suite)
        except (SuiteError, TaskError) as error:
            raise ConfigError(f"bench.suite: {error}") from error


def _check_stages(config: RunConfig) -> None:
    stages, cycles = config.schedule.stages, config.schedule.cycles
    if unknown := [stage for stage in stages if stage not in STAGES]:
        raise ConfigError(f"schedule.stages names {unknown[0]!r}: the stages are {', '.join(STAGES)}")
    if not stages or list(stages) != sorted(set(stages), key=STAGES.index):
        raise ConfigError(
            f"schedule.stages is {list(stages)}: list at least one stage, each once, in the order "
            f"{', '.join(STAGES)}"
        )
    if "cycle" in stages and "after" not in stages:
        raise ConfigError(
            "schedule.stages lists cycle without after: a candidate is compared with what `after` measured"
        )
    if "teach" not in stages and config.model.path is None:
        raise ConfigError(
            "schedule.stages lacks teach and model.path is not given: random weights must be taught first"
        )
    if not config.schedule.every_s >= 0:
        raise ConfigError(f"schedule.every_s is {config.schedule.every_s}: make it at least 0")
    if cycles < 1:
        raise ConfigError(
            f"schedule.cycles is {cycles}: make it 1 or more, or leave `cycle` out of the stages"
        )


def _check_tasks(config: RunConfig) -> None:
    held_out = config.tasks.held_out
    try:
        splits = [split for split in sources(config.tasks).splits if split != TRAIN]
    except (SourceError, TaskError) as error:
        raise ConfigError(f"tasks.sources: {error}") from error
    if unknown := held_out.keys() - set(splits):
        raise ConfigError(
            f"tasks.held_out names the split {min(unknown)!r}: the held-out splits are {', '.join(splits)}"
        )
    if not held_out or min(held_out.values()) < 1:
        raise ConfigError("tasks.held_out measures nothing: give each split that it names at least one task")


def _check_profiles(config: RunConfig) -> None:
    """The teacher needs a tool to edit with, and the words of the profile that the run goes on with."""
    for key, names in (("teach", config.teach.profiles), ("bench", config.bench.profiles)):
        if len(set(names)) < len(names) or not set(names) <= set(PROFILES):
            raise ConfigError(
                f"{key}.profiles is {list(names)}: name each profile once, of {', '.join(PROFILES)}"
            )
    if config.harness.profile in config.bench.profiles:
        raise ConfigError(f"bench.profiles repeats harness.profile, {config.harness.profile!r}: leave it out")
    if "teach" not in config.schedule.stages:
        return
    if config.harness.profile not in taught_profiles(config):
        raise ConfigError(
            f"teach.profiles is {list(config.teach.profiles)} and harness.profile "
            f"{config.harness.profile!r}: teach the profile that the run goes on with, too"
        )
    for name in taught_profiles(config):
        if not {"edit", "apply_patch"} & {offer.tool for offer in profile(name).offers}:
            raise ConfigError(
                f"the teacher cannot edit under the profile {name!r}, which has neither edit nor patch: let "
                "it teach another, or start from a model without `teach`"
            )


def _check_practice(config: RunConfig) -> None:
    try:
        config.practice.refuse_deadlock(config.refine.groups)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if config.refine.versions is None or config.refine.spread:
        raise ConfigError("practice ends at refine.versions: make it a number, and leave refine.spread false")
    practice_definition(config.practice)
    _check_outside(config)


def _check_outside(config: RunConfig) -> None:
    outside = config.practice.outside
    if not outside.harness:
        return
    try:
        outside.check()
    except ValueError as error:
        raise ConfigError(f"practice.outside: {error}") from error
    if config.sandbox not in ("auto", "ns"):
        raise ConfigError(f"practice.outside needs the sandbox ns, and sandbox is {config.sandbox!r}")


def _check_live(live: LiveConfig) -> None:
    live_definition(live)
    if bool(live.judge) != bool(live.judge_model):
        raise ConfigError("live.judge and live.judge_model go together: an address and the model there")
    if live.claim not in CLAIMS:
        raise ConfigError(f"live.claim is {live.claim!r}: it is one of {', '.join(CLAIMS)}")
    if not 0 <= live.hold_out < 1:
        raise ConfigError(f"live.hold_out is {live.hold_out}: it is 0 or more, and below 1")
    if not 0 < live.person_share <= 1:
        raise ConfigError(f"live.person_share is {live.person_share}: it lies above 0 and is 1 at most")
    if not 0 < live.challenger_share < 1:
        raise ConfigError(f"live.challenger_share is {live.challenger_share}: it lies between 0 and 1")
    shares = [0.0, live.canary_share, *live.ramp, live.challenger_share]
    if live.canary_sessions and shares != sorted(set(shares)):
        raise ConfigError(
            f"live.canary_share {live.canary_share}, live.ramp {list(live.ramp)} and live.challenger_share "
            f"{live.challenger_share}: a release widens, so each is larger than the one before"
        )
    if min(live.shadow_requests, live.canary_sessions) < 0:
        raise ConfigError("live.shadow_requests and live.canary_sessions are 0 at least")
    for name in ("sessions", "ab_sessions", "canary_sessions"):
        sessions = getattr(live, name)
        if sessions < 1 and name != "canary_sessions":
            raise ConfigError(f"live.{name} is {sessions}: make it at least 1")
        if live.developers != PEOPLE and (live.developers < 1 or sessions % live.developers):
            raise ConfigError(
                f"live.{name} is {sessions} and live.developers {live.developers}: simulated developers "
                "share the sessions evenly, so make it a multiple of their number"
            )
