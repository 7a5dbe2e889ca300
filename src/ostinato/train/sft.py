"""Supervised fine-tuning on a teacher's sessions.

::

    rows ─► pool ─► batch ─► step ─► … ─► checkpoint ─► anchor published

The first part of the budget trains on random spans to copy, since copying is what takes longest to appear.
With a budget of steps the same lessons and seed give the same weights to the bit, whichever lesson ended
first. A killed run goes on from its last saved state, with the batches that it would have had.
"""

import hashlib
import logging
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ostinato.store import Ledger, Store
from ostinato.train.base import StateError, Trainer, record_of
from ostinato.train.batch import Row
from ostinato.train.config import Budget, SftConfig, SftProcess
from ostinato.train.journal import Journal
from ostinato.train.opened import opened
from ostinato.train.process import Stop, run
from ostinato.train.teacher import Pool, TeacherRows, chosen_rows, induction_row

log = logging.getLogger(__name__)
INDUCTION_BATCH = 64
FLAT_UNTIL, LOWEST = 0.6, 0.05
BATCHES_DRAWN = 4
"""Batches that are drawn together, so that rows of similar length can share one."""
REPORT_EVERY = 10


def learning_rate(config: SftConfig, step: int, used: float) -> float:
    """Return the rate: it rises at first, stays, and falls linearly over the last 40 % of the budget."""
    fall = 1.0 if used < FLAT_UNTIL else max(LOWEST, (1 - used) / (1 - FLAT_UNTIL))
    return config.learning_rate * min(1.0, (step + 1) / config.rise_steps) * fall


class Sft:
    """The fine-tuning of `trainer`'s weights on `rows`: at least one, in the same order after a restart.

    `trained` is called with the sessions that were learnt from, as soon as they are in a saved state.
    """

    def __init__(
        self,
        trainer: Trainer,
        rows: Sequence[Row],
        run_dir: Path,
        budget: Budget,
        config: SftConfig,
        *,
        vocab_size: int,
        seed: int = 0,
        trained: Callable[[Iterable[str]], None] = lambda _: None,
    ) -> None:
        self._trainer = trainer
        self._config = config
        self._rows = rows
        self._budget = budget
        self._vocab_size = vocab_size
        self._seed = seed
        self._rng = random.Random(seed)
        self._pool = Pool(rows, self._rng)
        self._drawn: list[list[Row]] = []
        self._trained = trained
        self._learnt: set[str] = set()
        self._journal = Journal(run_dir / "sft.jsonl")
        self.step = 0
        self._induction = 0
        """The steps on spans to copy so far."""
        self._cpu_before = 0.0
        self._cpu_at_start = time.process_time()
        self._resume()

    def _resume(self) -> None:
        """Load the last saved state, and draw its batches once more, so that the next one is the same.

        `trained` is called once more with the sessions that are in the state.
        """
        note = self._trainer.go_on()
        if note is None:
            return
        if note["seed"] != self._seed:
            raise StateError(f"the run began with seed {note['seed']} and cannot go on with {self._seed}")
        if note["lessons"] != self._lessons:
            raise StateError(
                "the store holds other lessons of a teacher than those that the run began with: it cannot go "
                "on, give another --run-dir to begin again"
            )
        for self.step in range(note["step"]):
            if self.step < note["induction"]:
                self._spans()
            else:
                self._learnt |= _sessions(self._next_drawn())
        self.step, self._cpu_before = note["step"], note["cpu_s"]
        self._report_trained()
        log.info("going on at step %d", self.step)

    @property
    def _lessons(self) -> str:
        """The digest of the sessions to learn from, in order."""
        return hashlib.sha256(" ".join(row.session_id or "" for row in self._rows).encode()).hexdigest()

    @property
    def cpu_s(self) -> float:
        """The CPU seconds spent so far, those before a restart included."""
        return self._cpu_before + time.process_time() - self._cpu_at_start

    @property
    def used(self) -> float:
        return self._budget.used(step=self.step, cpu_s=self.cpu_s)

    def run(self, stop: Stop) -> bool:
        """Train until the budget is used up; return False when `stop()` came first."""
        while self.used < 1:
            if stop():
                return False
            self._train_on(self._spans() if self.used < self._config.induction else self._next_drawn())
        self._save()
        return True

    def _spans(self) -> list[Row]:
        self._induction += 1
        return [induction_row(self._vocab_size, self._rng) for _ in range(INDUCTION_BATCH)]

    def _next_drawn(self) -> list[Row]:
        """Return the next batch of lessons."""
        self._drawn = self._drawn or self._pool.draw(BATCHES_DRAWN, self._config.batch)
        return self._drawn.pop()

    def _train_on(self, rows: Sequence[Row]) -> None:
        rate = learning_rate(self._config, self.step, self.used)
        loss = self._trainer.imitate(rows, rate)
        self._learnt |= _sessions(rows)
        self.step += 1
        if self.step % REPORT_EVERY == 0 or self.used >= 1:
            self._report(loss, rate)
        if self.step % self._config.save_every == 0:
            self._save()

    def _save(self) -> None:
        note = {
            "step": self.step,
            "cpu_s": self.cpu_s,
            "seed": self._seed,
            "induction": self._induction,
            "lessons": self._lessons,
        }
        self._trainer.save(self.step, note)
        self._report_trained()

    def _report_trained(self) -> None:
        self._trained(sorted(self._learnt))
        self._learnt.clear()

    def _report(self, loss: float, rate: float) -> None:
        self._journal.add(
            {
                "step": self.step,
                "loss": loss,
                "learning_rate": rate,
                "rows": len(self._rows),
                "cpu_s": self.cpu_s,
                "used": self.used,
            }
        )


def _sessions(rows: Sequence[Row]) -> set[str]:
    return {row.session_id for row in rows if row.session_id is not None}


def train(settings: SftProcess, stop: Stop) -> None:
    """Train to a checkpoint and publish it; when stopped, leave only a state."""
    run_dir = settings.run_dir or settings.out / "sft"
    with opened(settings, run_dir, weight_decay=settings.sft.weight_decay) as start:
        if not start.leads:
            return
        store = Store.open(settings.store)
        lessons = TeacherRows(store, context=start.context, observed=settings.sft.observed)
        rows = (
            lessons.read() if settings.chosen is None else chosen_rows(settings.chosen, settings.sft.observed)
        )
        if not rows:
            raise StateError("the store holds no session of a teacher to learn from: give lessons first")
        sft = Sft(
            start.trainer,
            rows,
            run_dir,
            settings.budget,
            settings.sft,
            vocab_size=start.vocab_size,
            seed=settings.seed,
            trained=lessons.trained,
        )
        if sft.run(stop):
            parent = start.meta.version or None
            start.leave(settings.out, version=settings.version, parent=parent)
            publish(start.trainer, store, settings.version)


def publish(trainer: Trainer, store: Store, version: int) -> None:
    """Publish the weights as an anchor unless that was done before a restart; its batch names the lessons."""
    ledger = Ledger(store)
    manifest = trainer.manifest(version) if trainer.resume() is not None else trainer.publish(version)
    ledger.bind(manifest.run)
    ledger.commit(record_of(manifest, batch=ledger.lessons_read()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run fine-tuning as a process; return its exit status."""
    return run(SftProcess, train, arguments, "ostinato.train.sft", __doc__)


if __name__ == "__main__":
    sys.exit(main())
