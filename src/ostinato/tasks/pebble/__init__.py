"""Pebbles: tiny real repositories that a tiny model can learn to repair in minutes on a CPU.

The teacher, `rollout` and `demo` come in, by the names that are imported here.
"""

from ostinato.tasks.pebble.base import LineChange, Pebble
from ostinato.tasks.pebble.families import Family, Function
from ostinato.tasks.pebble.generate import KINDS, MIXTURE, generate, sample
from ostinato.tasks.pebble.source import PebbleSource, pebble_of, problem
from ostinato.tasks.pebble.splits import SPLITS
from ostinato.tasks.pebble.write import provide, write
from ostinato.tasks.source import TRAIN

__all__ = [
    "KINDS",
    "MIXTURE",
    "SPLITS",
    "TRAIN",
    "LineChange",
    "Family",
    "Function",
    "Pebble",
    "PebbleSource",
    "generate",
    "pebble_of",
    "problem",
    "provide",
    "sample",
    "write",
]
