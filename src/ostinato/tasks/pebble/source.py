"""Pebbles as a source of tasks: they are generated as they are drawn, without end."""

from collections.abc import Iterator, Mapping
from itertools import count, islice
from pathlib import Path
from random import Random

from ostinato.tasks.pebble.base import Pebble
from ostinato.tasks.pebble.generate import KINDS, MIXTURE, generate, sample
from ostinato.tasks.pebble.splits import SPLITS
from ostinato.tasks.pebble.write import provide
from ostinato.tasks.source import TRAIN, Problem, SourceError
from ostinato.types import Grade, Task

BANNER = "\n=========================== short test summary info ============================\n"
"""The line that pytest prints above its failures."""


class PebbleSource:
    """The generated pebbles of every split, of each kind as often as its share says."""

    def __init__(self, shares: Mapping[str, float] = MIXTURE) -> None:
        if unknown := shares.keys() - set(KINDS):
            raise SourceError(
                f"there are no pebbles of kind {min(unknown)!r}: the kinds are {', '.join(KINDS)}"
            )
        if not shares or min(shares.values()) <= 0:
            raise SourceError("pebbles need at least one kind, and a share above zero for each")
        self._shares = shares

    @property
    def splits(self) -> tuple[str, ...]:
        return SPLITS

    def problems(self, split: str, seed: int) -> Iterator[Problem]:
        return map(problem, pebbles(split, seed, self._shares)) if split in SPLITS else iter(())

    def stored(self, split: str) -> tuple[Problem, ...]:
        return ()

    def text(self, tasks: int, seed: int, rng: Random) -> Iterator[str]:
        """Yield repositories, requests, edits, and what a test run prints of a failure."""
        for pebble in islice(pebbles(TRAIN, seed, self._shares), tasks):
            yield pebble.instruction
            yield from pebble.files.values()
            for change in pebble.changes:
                yield from (change.old, change.new)
            yield "".join([rng.choice("F.") for _ in pebble.functions] + [BANNER])
            for function in pebble.targets:
                got, wanted = rng.randrange(-3, 30), rng.randrange(30)
                yield f"FAILED test_{function.path}::test_{function.name} - assert {got} == {wanted}"


def pebbles(split: str, first_seed: int, shares: Mapping[str, float] = MIXTURE) -> Iterator[Pebble]:
    """Yield the pebbles of a split without end, each key once."""
    keys = set()
    for seed in count(first_seed):
        pebble = sample(split, seed, shares)
        if pebble.key not in keys:
            keys.add(pebble.key)
            yield pebble


def problem(pebble: Pebble) -> Problem:
    """Return the pebble as a problem, which is written when it is provided."""

    def written(folder: Path) -> Task:
        return provide(pebble, folder / pebble.id)

    return Problem(
        id=pebble.id,
        key=pebble.key,
        kind=pebble.kind,
        split=pebble.split,
        grade=Grade.JUDGED,
        provide=written,
    )


def pebble_of(task: Task) -> Pebble | None:
    """Return the pebble that a task was written from; None for a task of another source."""
    words = task.id.split("-")
    if len(words) != 4 or words[0] != "pebble" or words[2] not in SPLITS or not words[3].isdecimal():
        return None
    pebble = generate(words[1], words[2], int(words[3])) if words[1] in KINDS else None
    return pebble if pebble is not None and pebble.key == task.key else None
