"""Pebbles as a source: the same streams for ever, and a task that knows its pebble again."""

import hashlib
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from ostinato.tasks.pebble import KINDS, PebbleSource, generate, pebble_of, write


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_knows_its_pebble_again(tmp_path: Path, kind: str) -> None:
    pebble = generate(kind, "larger", 8)
    task = write(pebble, tmp_path / "task")
    assert pebble_of(task) == pebble
    for other in ("pebble-fix-train", "pebble-x-train-3", "pebble-fix-train-x", "mined-a-b-3"):
        assert pebble_of(replace(task, id=other)) is None
    assert pebble_of(replace(task, key="0" * 16)) is None


def test_the_streams_and_the_text_stay_what_they_were() -> None:
    """A run's seed decides its tasks for ever, so that figures of different releases can be compared."""
    drawn = [problem.id for problem in islice(PebbleSource().problems("train", 1_500_000), 50)]
    text = "\n".join(PebbleSource().text(20, 1_900_000, Random(1)))
    assert hashlib.sha256("\n".join(drawn).encode()).hexdigest()[:12] == "8fe7a407cf62"
    assert hashlib.sha256(text.encode()).hexdigest()[:12] == "7b3b1d826763"
