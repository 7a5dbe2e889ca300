"""The pebble family: tiny real repositories that a tiny model can learn to repair in minutes on a CPU."""

from ostinato.tasks.pebble.base import Change, Pebble
from ostinato.tasks.pebble.families import Family, Function
from ostinato.tasks.pebble.generate import KINDS, MIXTURE, generate, mixture, sample
from ostinato.tasks.pebble.splits import SPLITS, TRAIN
from ostinato.tasks.pebble.write import provide, write

__all__ = [
    "KINDS",
    "MIXTURE",
    "SPLITS",
    "TRAIN",
    "Change",
    "Family",
    "Function",
    "Pebble",
    "generate",
    "mixture",
    "provide",
    "sample",
    "write",
]
