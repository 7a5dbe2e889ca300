"""The settings of continued pretraining. Torch-free, so that whoever starts it need not load torch."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ostinato.train.config import TrainerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainPhase:
    """One phase: rows of one length, with a schedule of its own.

    >>> PretrainPhase(length=1024, tokens=100_000, batch_tokens=4096).steps
    25
    """

    length: int
    """The tokens of a row, which is the longest context that the phase trains."""
    tokens: int
    """The tokens of the phase."""
    batch_tokens: int = 16_384
    """The tokens of one optimizer step."""
    learning_rate: float = 3e-4
    warm_up: float = 0.05
    """The share of its steps over which the rate rises."""
    decay: float = 0.3
    """The share of its steps, at the end, over which the rate falls to zero; between the two it stays."""
    rope: Literal["kept", "base", "yarn"] = "kept"
    """The way in which rotary positions reach `length`: `base` sets their base to `rope_base`, `yarn`
    stretches them as YaRN does."""
    rope_base: float = 0.0
    draft: Literal["none", "alone", "joint"] = "none"
    """An MTP layer that learns to draft for the model (`docs/speculative.md`): `alone` on weights that stay,
    `joint` beside weights that learn, which it does not change."""

    @property
    def rows(self) -> int:
        """The rows of one step."""
        return max(1, self.batch_tokens // self.length)

    @property
    def steps(self) -> int:
        return math.ceil(self.tokens / (self.rows * self.length))

    def rate(self, step: int) -> float:
        """Return the learning rate of a step of the phase."""
        rise = (step + 1) / max(1.0, self.warm_up * self.steps)
        fall = (self.steps - step) / max(1.0, self.decay * self.steps)
        return self.learning_rate * min(1.0, rise, fall)

    def __post_init__(self) -> None:
        if min(self.length, self.tokens, self.batch_tokens) < 2 or self.learning_rate <= 0:
            raise ValueError("length, tokens and batch_tokens must be above 1, learning_rate above 0")
        if self.warm_up < 0 or self.decay < 0 or self.warm_up + self.decay > 1:
            raise ValueError(f"warm_up {self.warm_up} and decay {self.decay} are shares of one phase")
        if (self.rope == "base") != (self.rope_base > 0):
            raise ValueError('rope = "base" goes with the rope_base that it sets')


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainProcess:
    """The settings of `ostinato pretrain`."""

    start: Path
    """the checkpoint to start from"""
    corpus: Path
    """the folder that `ostinato data build` wrote"""
    out: Path
    """the folder for the trained checkpoint, which must not exist"""
    phases: tuple[PretrainPhase, ...]
    run_dir: Path | None = None
    """states and pretrain.jsonl; without it OUT.run"""
    confined: bool = True
    """A token attends to its own document alone; otherwise to its whole row."""
    z_loss: float = 1e-4
    """The weight of the squared logarithm of the softmax's denominator, which keeps logits from growing."""
    weight_decay: float = 0.1
    largest_gradient: float = 1.0
    """The norm to which larger gradients are cut."""
    evaluate_every: int = 50
    """The steps after which bits a byte are measured on the held-out sources; also at the ends of phases."""
    evaluate_rows: int = 16
    """The rows that are measured, spread evenly over the held-out sources."""
    save_every: int = 50
    """The steps after which a state is saved; a killed run does those since the last one again."""
    seed: int = 0
    trainer: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        if not self.phases:
            raise ValueError("phases: give at least one")
        drafts = [phase.draft != "none" for phase in self.phases]
        if drafts != sorted(drafts):
            raise ValueError("a phase without a draft comes after one with it, and would leave it behind")
        if self.trainer.draft != "none":
            raise ValueError("trainer.draft is not for pretraining: set draft of a phase")
        if self.trainer.kind not in ("local", "fsdp"):
            raise ValueError(f"trainer.kind is {self.trainer.kind!r}: local and fsdp pretrain")
        if any(drafts) and self.trainer.kind != "local":
            raise ValueError('drafts are trained by the local trainer: set kind = "local", or draft = "none"')
        if min(self.evaluate_every, self.evaluate_rows, self.save_every) < 1 or self.z_loss < 0:
            raise ValueError("evaluate_every, evaluate_rows and save_every must be above 0, z_loss not below")

    @property
    def steps(self) -> int:
        """The steps of all phases."""
        return sum(phase.steps for phase in self.phases)
