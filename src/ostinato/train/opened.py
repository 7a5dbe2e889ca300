"""The trainer that a process's settings ask for, with the checkpoint that it starts from."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato.extend import failure
from ostinato.model.checkpoint import CheckpointMeta, finish, load, load_meta
from ostinato.model.config import META
from ostinato.model.tensor_files import CONFIG, copy_companions, read_json
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Objects
from ostinato.train.base import Trainable, Trainer
from ostinato.train.config import (
    TRAINERS,
    LearnerConfig,
    LearnerProcess,
    SftProcess,
    TrainerConfig,
    plugins_of,
)
from ostinato.train.local import DecoderModel
from ostinato.train.pretrain.draft import DraftingModel
from ostinato.train.trainer import ChainTrainer

MakeTrainable = Callable[[Path, Path, TrainerConfig], Trainable]
"""A function from a checkpoint, the folder for states and the settings to weights with their optimizer."""


def trainer(name: str) -> Callable[[MakeTrainable], MakeTrainable]:
    """Return a decorator that adds a trainer, for `kind = "NAME"` in `[trainer]`.

    The function makes a `Trainable` (`train.base`), of which `local.DecoderModel` is one to build on. Claims,
    versions, publication and what follows a kill stay ours. One that fails ends the trainer.
    """

    def add(make: MakeTrainable) -> MakeTrainable:
        TRAINERS.add(name, make)
        return make

    return add


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTrainer:
    """A trainer, and the start of its lineage."""

    trainer: Trainer
    checkpoint: Path
    meta: CheckpointMeta
    vocab_size: int
    context: int
    """The positions of the model: no row may be longer."""
    draft: DraftingModel | None = None
    """The model, where a draft learns beside it."""
    leads: bool = True
    """False in a process that has repeated the calls of another one, and has nothing left to do."""

    def leave(self, out: Path, *, version: int, parent: int | None) -> None:
        """Write the weights as a checkpoint of `version`. Raises CheckpointError."""
        (out / META).unlink(missing_ok=True)
        copy_companions(self.checkpoint, out)
        self.trainer.write(out)
        meta = finish(out, version=version, parent=parent, harness=self.meta.harness)
        if self.draft is not None:
            self.draft.leave_draft(out, meta)


@contextmanager
def opened(
    settings: LearnerProcess | SftProcess,
    run_dir: Path,
    config: LearnerConfig | None = None,
    *,
    weight_decay: float = 0.0,
    before: Path | None = None,
) -> Iterator[OpenedTrainer]:
    """Open the trainer of `settings`. Raises CheckpointError for a checkpoint that it cannot train."""
    config, objects, checkpoint = (
        config or LearnerConfig(),
        Objects.open(settings.objects),
        settings.checkpoint,
    )
    made_with = plugins_of(config.policy, settings.trainer)
    if settings.trainer.kind != "fsdp":
        alone = _alone(settings, run_dir, weight_decay)
        yield OpenedTrainer(
            trainer=ChainTrainer(alone, objects, config, before=before, made_with=made_with),
            checkpoint=checkpoint,
            meta=load_meta(checkpoint),
            vocab_size=Tokenizer.load(checkpoint).vocab_size,
            context=alone.context,
            draft=alone if isinstance(alone, DraftingModel) else None,
        )
        return
    from ostinato.train.fsdp.model import ShardedModel
    from ostinato.train.fsdp.ranks import LeadingTrainer, Ranks, follow

    ranks = Ranks.join(settings.trainer)
    try:
        model = ShardedModel(checkpoint, run_dir, settings.trainer, ranks, weight_decay=weight_decay)
        chain = ChainTrainer(model, objects, config, group=ranks.group, before=before, made_with=made_with)
        leading = LeadingTrainer(chain, ranks)
        if not ranks.leads:
            follow(chain, ranks)
        words = read_json(checkpoint / CONFIG)
        yield OpenedTrainer(
            trainer=leading,
            checkpoint=checkpoint,
            meta=load_meta(checkpoint),
            vocab_size=int(words["vocab_size"]),
            context=model.context,
            leads=ranks.leads,
        )
        if ranks.leads:
            leading.end()
    finally:
        ranks.leave()


def _alone(settings: LearnerProcess | SftProcess, run_dir: Path, weight_decay: float) -> Trainable:
    """Return the weights of one process: our own decoder, or what a plug-in makes."""
    checkpoint, config = settings.checkpoint, settings.trainer
    make: MakeTrainable | None = TRAINERS[config.kind]
    if make is not None:
        try:
            return make(checkpoint, run_dir, config)
        except Exception as error:
            raise failure(f"the trainer {config.kind}", TRAINERS.plugin(config.kind), error) from error
    decoder, _, _ = load(checkpoint)
    how: dict[str, Any] = {"weight_decay": weight_decay, "piece_tokens": config.piece_tokens}
    if config.draft == "none":
        return DecoderModel(decoder, run_dir, **how)
    drafting = "joint" if isinstance(settings, SftProcess) else config.draft
    return DraftingModel(decoder, run_dir, checkpoint, how=drafting, **how)
