"""Splits: the problems that practice may see, and those that are kept for measuring.

Hashes decide everything, never the order of generation. Practice draws from `train`. Each other split holds
out exactly one thing: `seeds` new problems of the same make, `names` function names, `pairs` (family, right,
wrong) repairs, `larger` more functions and files, `families` shapes of function.
"""

import hashlib
import json

from ostinato.tasks.pebble.families import FAMILIES, Family
from ostinato.tasks.source import TRAIN

SPLITS = (TRAIN, "seeds", "names", "pairs", "larger", "families")
NAMES = (
    *("alpha", "beta", "gamma", "delta", "omega", "sigma"),
    *("kappa", "theta", "zeta", "iota", "rho", "tau"),
)
HELD_OUT_NAME_COUNT = 4
MORE_HELD_OUT_NAMES = (
    *("waw", "mu", "nu", "xi", "pi", "phi", "chi", "psi", "alef", "beth", "gimel", "dalet", "vav"),
    *("khet", "tet", "yod", "kaf", "lamed", "mem", "nun", "ayin", "tsadi", "qof", "resh", "shin", "tav"),
)
"""Names that are all held out, so that the split has as many clusters as an interval needs."""
HELD_OUT_PAIR_SHARE = 6
"""The number of (right, wrong) pairs of a family of which one is held out."""
HELD_OUT_KEY_SHARE = 4
"""The number of keys of which one is kept from practice."""


def digest(*parts: object) -> str:
    """Return 16 hexadecimal digits that depend on every part and on nothing else."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def key_is_held_out(key: str) -> bool:
    return int(key[:8], 16) % HELD_OUT_KEY_SHARE == 0


FIRST_HELD_OUT_NAMES = tuple(sorted(NAMES, key=lambda name: digest("name", name))[:HELD_OUT_NAME_COUNT])
HELD_OUT_NAMES = FIRST_HELD_OUT_NAMES + MORE_HELD_OUT_NAMES
TRAIN_NAMES = tuple(name for name in NAMES if name not in HELD_OUT_NAMES)
TRAIN_FAMILIES = tuple(family for family in FAMILIES if not family.held_out)
HELD_OUT_FAMILIES = tuple(family for family in FAMILIES if family.held_out)


def _pairs(family: Family) -> list[tuple[str, str]]:
    """Return all (right, wrong) pairs of a family, in the order of their hashes."""
    pairs = [(right, wrong) for right in family.options for wrong in family.options if right != wrong]
    return sorted(pairs, key=lambda pair: digest("pair", family.name, *pair))


def _held_out_pairs(family: Family) -> tuple[tuple[str, str], ...]:
    """Return a sixth of the first repairs, and two thirds of those with an option that came late."""
    late = [pair for pair in _pairs(family) if set(pair) & set(family.late)]
    first = [pair for pair in _pairs(family) if pair not in late]
    return (*first[: len(first) // HELD_OUT_PAIR_SHARE], *late[: 2 * len(late) // 3])


HELD_OUT_PAIRS = {family.name: _held_out_pairs(family) for family in TRAIN_FAMILIES}
TRAIN_PAIRS = {
    family.name: tuple(pair for pair in _pairs(family) if pair not in HELD_OUT_PAIRS[family.name])
    for family in TRAIN_FAMILIES
}


def names(split: str) -> tuple[str, ...]:
    """Return the names that a target may have."""
    return HELD_OUT_NAMES if split == "names" else TRAIN_NAMES


def families(split: str) -> tuple[Family, ...]:
    """Return the families that a target may belong to."""
    return HELD_OUT_FAMILIES if split == "families" else TRAIN_FAMILIES


def pairs(split: str, family: Family) -> tuple[tuple[str, str], ...]:
    """Return the (right, wrong) pairs that a target may have."""
    if family.held_out:
        return tuple(_pairs(family))
    return (HELD_OUT_PAIRS if split == "pairs" else TRAIN_PAIRS)[family.name]
