"""The settings of the trainers. Torch-free, so that whoever starts one need not load torch."""

import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from ostinato.extend import Registry

CORRECTIONS: Registry[Any] = Registry(
    "correction", dict.fromkeys(("truncated", "none", "icepop", "sequence"))
)
"""The corrections by name: those of plug-ins, and None for ours, which `objective.corrections` makes."""
LOSSES: Registry[Any] = Registry("loss", {"weighted": None})
"""The losses by name: those of plug-ins, and None for ours, which `objective.loss` makes."""
BASELINES: Registry[Any] = Registry("baseline", dict.fromkeys(("others", "group")))
"""The baselines by name: those of plug-ins, and None for ours, which `objective.group` has."""
TRAINERS: Registry[Any] = Registry("trainer", dict.fromkeys(("local", "fsdp")))
"""The trainers by name: those of plug-ins, and None for ours, which `opened` opens."""
OUTLETS: Registry[Any] = Registry(
    "outlet", dict.fromkeys(("tensorboard", "opentelemetry", "trackio", "wandb"))
)
"""The outlets by name: those of plug-ins, and None for ours, which `figures.outlets` opens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """The settings of one step. The defaults are the demo's: sessions of about 30 sampled tokens."""

    tokens_per_session: float = 30.0
    """The constant that the loss is divided by, together with the number of sessions: about the number of
    tokens that a session samples. It is set and never measured, so that no session's length changes the
    weight of another's. Adam does not see it; it says what `largest_gradient` means: long sessions under a
    small constant are clipped at every step, and the clip becomes a normaliser.
    """
    largest_gradient: float = 0.5
    """Norm to which larger gradients are cut; it grows with the model and with the noise of its rewards."""
    baseline: str = "others"
    """The baseline in a group of practice: the mean of the `others`, with which the expected gradient is that
    of the reward for groups of any size, or of the whole `group`, itself included: (1 - 1/G) times it. A
    plug-in may have added others."""
    loss: str = "weighted"
    """The loss of a token: `weighted` is minus its advantage times log pi times the weight of the
    `correction`. A plug-in may have added others, which have no use for a correction."""
    correction: str = "truncated"
    """The weight of a token that other weights sampled, by the ratio r = pi / mu: `truncated` is min(r,
    ratio_cap); `none` is 1; `icepop` is r between ratio_low and ratio_high and 0 outside; `sequence` is the
    geometric mean of r over the sampled tokens of the row, at most ratio_cap. All are detached. A plug-in may
    have added others."""
    ratio_cap: float = 2.0
    """The ratio above which it counts as this, for `truncated` and `sequence`; at least 1, so that a token of
    the present weights counts whole.

    Higher is less biased and noisier with stale or mixed batches.
    """
    ratio_low: float = 0.5
    """The ratio below which `icepop` leaves a token out; between 0 and 1."""
    ratio_high: float = 5.0
    """The ratio above which `icepop` leaves a token out; at least 1."""
    k1: float = 0.0
    """The weight of the divergence from the reference in the reward of a session: the sum over its trained
    tokens of log pi - log pi_reference in nats, detached, is taken off the reward this many times, before the
    baseline. With 0 no reference is loaded. No gain of it on a model has been measured."""
    k1_reference: int | None = None
    """The version that k1 compares with; `none` is the one that the run began with."""
    routes: Literal["replay", "filtered", "own"] = "replay"
    """The experts of tokens whose engine recorded them: `replay` takes the recorded ones, `filtered` those of
    them that score at most `route_margin` too low, and `own` the model's own choice."""
    route_margin: float = 1.0
    """The distance in logits of the router, below the least one that the model would choose itself, up to
    which `filtered` takes a recorded expert."""

    @property
    def margin(self) -> float:
        """The margin of a recorded expert; infinite where all are taken."""
        return self.route_margin if self.routes == "filtered" else math.inf

    def __post_init__(self) -> None:
        _known(CORRECTIONS, "correction", self.correction)
        _known(LOSSES, "loss", self.loss)
        _known(BASELINES, "baseline", self.baseline)
        above = ("tokens_per_session", "largest_gradient", "ratio_low", "route_margin")
        values = {name: getattr(self, name) for name in above}
        if wrong := {name: value for name, value in values.items() if not 0 < value < math.inf}:
            raise ValueError(f"these settings of a step must be above 0: {wrong}")
        if not (self.ratio_low < 1 <= self.ratio_high and self.ratio_cap >= 1):
            raise ValueError(
                f"a token of the present weights has a ratio of 1 and must count whole: ratio_cap "
                f"{self.ratio_cap} and ratio_high {self.ratio_high} need to be at least 1, ratio_low "
                f"{self.ratio_low} below 1"
            )
        if not 0 <= self.k1 < math.inf or (self.k1_reference is not None and not self.k1):
            raise ValueError(
                f"k1 {self.k1} is a weight of at least 0, and k1_reference {self.k1_reference} names a "
                "version only where it is above 0"
            )
        self._refuse_unused()

    def _refuse_unused(self) -> None:
        """Raise ValueError for a bound that was set and that nothing reads."""
        icepop = "the correction", self.correction, ("icepop",)
        readers = {
            "ratio_cap": ("the correction", self.correction, ("truncated", "sequence")),
            "ratio_low": icepop,
            "ratio_high": icepop,
            "route_margin": ("routes", self.routes, ("filtered",)),
            "correction": ("the loss", self.loss, ("weighted",)),
        }
        for each in fields(self):
            if each.name not in readers or getattr(self, each.name) == each.default:
                continue
            setting, value, of = readers[each.name]
            if value not in of:
                raise ValueError(
                    f"{each.name} is set and {setting} is {value}: only {' and '.join(of)} has it"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig:
    """The way from groups to versions."""

    versions: int | None = None
    """Stop after so many new versions; `none` goes on without end."""
    groups: int = 10
    """Groups in one optimizer step, hence in one version."""
    staleness: int = 4
    """A group is dropped when its oldest token is more versions behind the published one than this."""
    learning_rate: float = 4e-4
    spread: bool = False
    """No more groups will come: those that wait are spread evenly over the versions up to the last one, and
    training ends early when they run out. `groups` is then not used."""
    figures_to: tuple[str, ...] = ()
    """Where the figures of each step go beside the record: event files in RUN/tensorboard, an OpenTelemetry
    collector, trackio, Weights & Biases (`wandb`), an outlet of a plug-in. The first three need the extra of
    their name."""
    policy: PolicyConfig = field(default_factory=PolicyConfig)

    def __post_init__(self) -> None:
        for name in self.figures_to:
            _known(OUTLETS, "figures_to", name)
        if self.groups < 1 or self.staleness < 0:
            raise ValueError(
                f"a step needs at least one group and a staleness of at least 0, got {self.groups} groups "
                f"and staleness {self.staleness}"
            )


def _known(registry: Registry[Any], setting: str, name: str) -> None:
    if name not in registry:
        raise ValueError(f"{setting} is {name!r}: use {', '.join(registry)}, or add one by a plug-in")


Dtype = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerConfig:
    """The trainer: what holds the weights, and over how many processes.

    >>> TrainerConfig(kind="fsdp", ranks=2).compute
    'float32'
    """

    kind: str = field(default="local", metadata={"flag": "--trainer"})
    """`local` trains our own decoder in one process; `fsdp` any causal language model of transformers. A
    plug-in may have added others, which are one process."""
    ranks: int = 1
    """Processes that share the weights and the batch; more than 1 are started by torchrun."""
    compute: Dtype = "float32"
    """The type of activations and gradients; the weights that the optimizer changes are float32."""
    served: Dtype = "float32"
    """The type of the weights that are published."""
    piece_tokens: int = 3072
    """Tokens in one forward pass: what the memory for activations allows. More did not get faster on one CPU
    thread."""
    recompute: bool = False
    """Compute activations again in the backward pass instead of keeping them: less memory, a third slower."""
    draft: Literal["none", "frozen", "refreshed", "joint"] = "none"
    """An MTP layer that learns to draft for the model and is published with it (`docs/speculative.md`). While
    a teacher is imitated it learns in every step; after that it stays (`frozen`), or learns in all steps
    (`joint`) or in those after its acceptance has fallen (`refreshed`). Of `local` alone."""
    lora_rank: int = 0
    """Train adapters of this rank instead of all weights; 0 trains all."""

    def __post_init__(self) -> None:
        _known(TRAINERS, "trainer.kind", self.kind)
        if self.ranks < 1 or self.piece_tokens < 1 or self.lora_rank < 0:
            raise ValueError(
                f"ranks {self.ranks}, piece_tokens {self.piece_tokens}, lora_rank {self.lora_rank}: need at "
                "least 1, 1 and 0"
            )
        if self.kind != "local" and self.draft != "none":
            raise ValueError(f"draft is {self.draft}: only the trainer of kind local teaches an MTP layer")
        shared = {"kind", "piece_tokens", "draft"}
        changed = [
            each.name
            for each in fields(self)
            if each.name not in shared and getattr(self, each.name) != each.default
        ]
        if self.kind == "local" and changed:
            raise ValueError(f"{', '.join(changed)}: only the trainer of kind fsdp has these settings")
        if self.kind != "fsdp" and self.ranks > 1:
            raise ValueError(f"ranks is {self.ranks}: only the trainer of kind fsdp is more than one process")


def plugins_of(policy: PolicyConfig, trainer: TrainerConfig) -> tuple[str, ...]:
    """Return what plug-ins bring to the weights: kind, name and the hash of the source, in order.

    >>> plugins_of(PolicyConfig(), TrainerConfig())
    ()
    """
    chosen = (
        (LOSSES, policy.loss),
        (CORRECTIONS, policy.correction),
        (BASELINES, policy.baseline),
        (TRAINERS, trainer.kind),
    )
    return tuple(
        f"{registry.kind} {name} {digest}" for registry, name in chosen if (digest := registry.digest(name))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerProcess:
    """The settings of a policy-gradient learner.

    It goes on from the newest published version, and ends after `until` or after so many `versions`.
    """

    store: str
    """SQLite file or SQLAlchemy URL"""
    objects: str
    """folder or URL of the object store"""
    checkpoint: Path
    """shape, tokenizer and first weights"""
    run_dir: Path
    """states, learner.jsonl, the last checkpoint"""
    until: int | None = None
    """stop once this version is published"""
    before: Path | None = None
    """run folder to take second moments from"""
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        if self.until is not None and self.learner.versions is not None:
            raise ValueError("until and versions exclude each other: name the last version or their number")
        if self.learner.spread and self.until is None and self.learner.versions is None:
            raise ValueError("spread needs to know over how many versions: give until or versions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The length of a training: a number of steps, or CPU seconds of this process.

    >>> Budget(steps=200).used(step=50, cpu_s=3.0)
    0.25
    """

    steps: int | None = None
    cpu_seconds: float | None = None

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.cpu_seconds is None):
            raise ValueError("a budget is either steps or cpu_seconds")

    def used(self, *, step: int, cpu_s: float) -> float:
        """Return the fraction that is used up; 1 or more is the end."""
        if self.steps is not None:
            return step / max(1, self.steps)
        assert self.cpu_seconds is not None
        return cpu_s / self.cpu_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SftConfig:
    """The settings of fine-tuning. The defaults are those of a small model with random weights."""

    learning_rate: float = 3e-3
    rise_steps: int = 30
    """Steps over which the rate rises to `learning_rate`."""
    batch: int = 20
    """Rows in one step."""
    weight_decay: float = 0.05
    induction: float = 0.12
    """The share of the budget that trains on random spans to copy, before any lesson; a model that was
    trained before needs none."""
    observed: float = 0.3
    """The weight of what tools and people said; sampled tokens weigh 1."""
    save_every: int = 100
    """The steps after which a state is saved; a killed run does those since the last one again."""

    def __post_init__(self) -> None:
        if min(self.rise_steps, self.batch, self.save_every) < 1 or self.learning_rate <= 0:
            raise ValueError(
                "sft: learning_rate must be above 0, rise_steps, batch and save_every at least 1, got "
                f"{self.learning_rate}, {self.rise_steps}, {self.batch} and {self.save_every}"
            )
        if not (0 <= self.induction < 1 and 0 <= self.observed <= 1):
            raise ValueError(f"sft: induction {self.induction} and observed {self.observed} are shares of 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class SftProcess:
    """The settings of supervised fine-tuning on a teacher's sessions."""

    store: str
    """SQLite file or SQLAlchemy URL with the sessions"""
    checkpoint: Path
    """the checkpoint to start from"""
    out: Path
    """the folder for the trained checkpoint"""
    budget: Budget
    run_dir: Path | None = None
    """states and sft.jsonl; without it OUT/sft"""
    objects: str
    """folder or URL of the object store that the result is published to, as an anchor"""
    version: int = 0
    """the version of the result"""
    chosen: Path | None = None
    """a JSON file of session ids by record, to learn from instead of the teacher's sessions"""
    seed: int = 0
    sft: SftConfig = field(default_factory=SftConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepublishProcess:
    """The settings of publishing an older version again."""

    store: str
    """SQLite file or SQLAlchemy URL"""
    objects: str
    """folder or URL of the object store"""
    version: int
    """the version whose weights become the newest"""
