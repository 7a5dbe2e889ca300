"""Continued pretraining as a process: phases of rows, each from the weights of the one before.

::

    start ─► phase 1: rows of 1,024 ─► state ─► phase 2: positions stretched, rows of 4,096 ─► … ─► out

Every process of a trainer of several reads the corpus itself and takes the same steps; they agree on nothing
but when to stop. Step n follows from the settings, the corpus and step n - 1 alone, so a run that was killed
goes on from its last state and ends in the same weights, to the bit.
"""

import hashlib
import logging
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from ostinato.config import dump
from ostinato.data.corpus import Corpus, TextRow
from ostinato.model.checkpoint import finish, load, load_meta
from ostinato.model.mtp import save_draft
from ostinato.model.tensor_files import copy_companions
from ostinato.model.tokenizer import Tokenizer
from ostinato.train.base import Note, StateError
from ostinato.train.fsdp.ranks import Ranks
from ostinato.train.journal import Journal
from ostinato.train.local import DecoderModel
from ostinato.train.losses import TextSums
from ostinato.train.packing import Pack
from ostinato.train.pretrain.bits import bits_of, held_out_rows
from ostinato.train.pretrain.config import PretrainPhase, PretrainProcess
from ostinato.train.pretrain.draft import DraftingModel
from ostinato.train.pretrain.extend import write_extended
from ostinato.train.pretrain.rows import text_packs
from ostinato.train.process import Stop, run

log = logging.getLogger(__name__)
REPORT_EVERY = 10
PLACE = Path()
"""The value of settings that say where files lie, which are not part of what is trained."""


class TextModel(Protocol):
    """Weights that learn text: `local.DecoderModel`, `fsdp.model.ShardedModel`."""

    def accumulate_text(self, packs: Sequence[Pack], z_loss: float) -> TextSums: ...

    def text_nats(self, packs: Sequence[Pack]) -> list[Tensor]: ...

    def update(self, rate: float, largest_gradient: float) -> float: ...

    def save(self, number: int, note: Note) -> None: ...

    def restore(self, number: int) -> Note | None: ...

    def saved(self, before: int | None = None) -> list[int]: ...

    def write(self, directory: Path) -> None: ...


def _opened(
    settings: PretrainProcess, phase: PretrainPhase, run_dir: Path, directory: Path, ranks: Ranks
) -> TextModel:
    """Return the model of a phase."""
    trainer, decay = settings.trainer, settings.weight_decay
    if phase.draft != "none":
        return DraftingModel(
            load(directory)[0],
            run_dir,
            settings.start,
            alone=phase.draft == "alone",
            seed=settings.seed,
            weight_decay=decay,
            piece_tokens=trainer.piece_tokens,
        )
    if trainer.kind == "local":
        decoder = load(directory)[0]
        return DecoderModel(decoder, run_dir, weight_decay=decay, piece_tokens=trainer.piece_tokens)
    from ostinato.train.fsdp.model import ShardedModel

    return ShardedModel(directory, run_dir, trainer, ranks, weight_decay=settings.weight_decay)


class Pretraining:
    """The training of one model through all phases. Raises StateError for a run of other settings."""

    def __init__(self, settings: PretrainProcess, run_dir: Path, ranks: Ranks, stop: Stop) -> None:
        self._settings, self._run_dir, self._leads = settings, run_dir, ranks.leads
        self._stop: Stop = lambda: any(ranks.all(stop()))
        self._corpus = Corpus.open(settings.corpus)
        self._tokenizer = Tokenizer.load(settings.start)
        if self._corpus.tokenizer != self._tokenizer.digest:
            raise StateError(
                f"{settings.corpus} was built with another tokenizer than that of {settings.start}: build it "
                "with `tokenizer` naming this checkpoint"
            )
        same = replace(settings, out=PLACE, run_dir=None, corpus=PLACE, start=PLACE)
        words = dump(same) + self._corpus.digest
        self._digest = hashlib.sha256(words.encode()).hexdigest()
        self._journal = Journal(run_dir / "pretrain.jsonl")
        self._began = time.process_time()

    def train(self, model: TextModel, phase: PretrainPhase, first: int, number: int) -> bool:
        """Train a phase, whose steps begin at `first`, or what is left of it; return False when stopped."""
        settings = self._settings
        last = first + phase.steps
        if (newest := max(model.saved(), default=0)) > last:
            return True
        step = self._resumed(model, newest) if newest else first
        held_out = held_out_rows(self._corpus, phase.length, settings.evaluate_rows)
        rows = self._corpus.rows(phase.length, settings.seed + number, (step - first) * phase.rows)
        while step < last:
            if self._stop():
                return False
            if (step - first) % settings.evaluate_every == 0:
                self._evaluate(model, held_out, phase, step)
            drawn = [next(rows) for _ in range(phase.rows)]
            packs = list(text_packs(drawn, settings.trainer.piece_tokens, confined=settings.confined))
            rate = phase.rate(step - first)
            sums = model.accumulate_text(packs, settings.z_loss)
            norm = model.update(rate, settings.largest_gradient)
            step += 1
            if self._leads and (step % REPORT_EVERY == 0 or step == last):
                draft = model.draft.figures() if isinstance(model, DraftingModel) else {}
                self._report(step, phase, sums, {"learning_rate": rate, "gradient": norm} | draft)
            if step % settings.save_every == 0 or step == last:
                model.save(step, {"digest": self._digest})
        self._evaluate(model, held_out, phase, step)
        return True

    def _resumed(self, model: TextModel, newest: int) -> int:
        """Load the newest state, which may be that of the phase before; return its step."""
        note = model.restore(newest)
        if note is None or note["digest"] != self._digest:
            raise StateError(
                f"{self._run_dir} holds a run of other settings or of another corpus: name another run_dir "
                "to begin again"
            )
        return newest

    def _evaluate(
        self, model: TextModel, held_out: Sequence[TextRow], phase: PretrainPhase, step: int
    ) -> None:
        if not held_out:
            return
        packs = list(text_packs(held_out, phase.length, confined=True))
        bits = bits_of(held_out, model.text_nats(packs), self._tokenizer)
        if self._leads:
            self._journal.add(
                {"step": step, "length": phase.length, "bits": bits.all, "bits_by_position": bits.by_position}
            )
            log.info("step %d: %.4f bits a byte on held-out text", step, bits.all)

    def _report(self, step: int, phase: PretrainPhase, sums: TextSums, more: Mapping[str, Any]) -> None:
        self._journal.add(
            {
                "step": step,
                "length": phase.length,
                "loss": sums.nats / sums.tokens,
                "normaliser": (sums.squares / sums.tokens) ** 0.5,
                **more,
                "cpu_s": time.process_time() - self._began,
            }
        )


def train(settings: PretrainProcess, stop: Stop) -> None:
    """Train through all phases and leave the checkpoint `out`; when stopped, leave only states."""
    if settings.out.exists():
        raise StateError(f"{settings.out} exists already: name another folder for the checkpoint")
    run_dir = settings.run_dir or settings.out.with_name(f"{settings.out.name}.run")
    ranks = Ranks(rank=0, size=1) if settings.trainer.kind == "local" else Ranks.join(settings.trainer)
    try:
        training = Pretraining(settings, run_dir, ranks, stop)
        first, directory = 0, settings.start
        for number, phase in enumerate(settings.phases):
            start, directory = directory, run_dir / f"phase-{number + 1}"
            if ranks.leads:
                write_extended(start, phase, directory)
            ranks.barrier()
            model = _opened(settings, phase, run_dir, directory, ranks)
            if not training.train(model, phase, first, number):
                return
            first += phase.steps
        _leave(settings, model, directory, ranks)
    finally:
        ranks.leave()


def _leave(settings: PretrainProcess, model: TextModel, directory: Path, ranks: Ranks) -> None:
    """Write the checkpoint, which appears whole."""
    part = settings.out.with_name(f"{settings.out.name}.part")
    if ranks.leads:
        shutil.rmtree(part, ignore_errors=True)
        copy_companions(directory, part)
    model.write(part)
    if ranks.leads:
        meta = finish(part, version=0, harness=load_meta(settings.start).harness)
        if isinstance(model, DraftingModel):
            tokenizer = Tokenizer.load(part).digest
            save_draft(part, model.draft.mtp, trunk=meta.digest, tokenizer=tokenizer)
        part.rename(settings.out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run continued pretraining as a process; return its exit status."""
    return run(PretrainProcess, train, arguments, "ostinato.train.pretrain.run", __doc__)


if __name__ == "__main__":
    sys.exit(main())
