"""The trainer that a process's settings ask for, with the checkpoint that it starts from."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato.model.checkpoint import CheckpointMeta, finish, load, load_meta
from ostinato.model.config import META
from ostinato.model.tensor_files import CONFIG, copy_companions, read_json
from ostinato.store import Objects
from ostinato.train.base import Trainer
from ostinato.train.config import LearnerConfig, LearnerProcess, SftProcess
from ostinato.train.local import DecoderModel
from ostinato.train.pretrain.draft import DraftingModel
from ostinato.train.trainer import ChainTrainer


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
    if settings.trainer.kind == "local":
        decoder, tokenizer, meta = load(checkpoint)
        how: dict[str, Any] = {"weight_decay": weight_decay, "piece_tokens": settings.trainer.piece_tokens}
        drafting, draft = settings.trainer.draft, None
        if drafting != "none":
            drafting = "joint" if isinstance(settings, SftProcess) else drafting
            draft = DraftingModel(decoder, run_dir, checkpoint, how=drafting, **how)
        local = draft or DecoderModel(decoder, run_dir, **how)
        trainer = ChainTrainer(local, objects, config, before=before)
        yield OpenedTrainer(
            trainer=trainer,
            checkpoint=checkpoint,
            meta=meta,
            vocab_size=tokenizer.vocab_size,
            context=local.context,
            draft=draft,
        )
        return
    from ostinato.train.fsdp.model import ShardedModel
    from ostinato.train.fsdp.ranks import LeadingTrainer, Ranks, follow

    ranks = Ranks.join(settings.trainer)
    try:
        model = ShardedModel(checkpoint, run_dir, settings.trainer, ranks, weight_decay=weight_decay)
        chain = ChainTrainer(model, objects, config, group=ranks.group, before=before)
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
