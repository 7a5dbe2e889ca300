"""Covers tasks/pebble/splits.py: no problem that is held out is ever practised."""

from collections.abc import Iterator

import pytest

from ostinato.tasks.pebble import KINDS, SPLITS, TRAIN, Pebble, generate, sample
from ostinato.tasks.pebble.families import family_named
from ostinato.tasks.pebble.splits import (
    FIRST_HELD_OUT_NAMES,
    HELD_OUT_FAMILIES,
    HELD_OUT_NAMES,
    HELD_OUT_PAIRS,
    TRAIN_FAMILIES,
    TRAIN_NAMES,
    TRAIN_PAIRS,
)

HELD_OUT = [split for split in SPLITS if split != TRAIN]
N = 4000


@pytest.fixture(scope="module")
def practised() -> list[Pebble]:
    return [sample(TRAIN, seed) for seed in range(N)]


def wrongs(pebbles: list[Pebble]) -> set[tuple[str, str, str]]:
    return {(f.family.name, f.wanted, f.shown) for p in pebbles for f in p.functions if f.wanted != f.shown}


def held_out(split: str, n: int = N // 4) -> Iterator[Pebble]:
    return (sample(split, seed) for seed in range(n))


@pytest.mark.parametrize("split", HELD_OUT)
def test_no_key_is_shared_with_practice(practised: list[Pebble], split: str) -> None:
    assert not {p.key for p in practised} & {p.key for p in held_out(split)}


def test_practice_uses_no_held_out_function_name(practised: list[Pebble]) -> None:
    assert {f.name for p in practised for f in p.functions} == set(TRAIN_NAMES)


def test_practice_uses_no_held_out_family(practised: list[Pebble]) -> None:
    assert {f.family for p in practised for f in p.functions} == set(TRAIN_FAMILIES)


def test_practice_repairs_no_held_out_pair(practised: list[Pebble]) -> None:
    held = {(family, *pair) for family, pairs in HELD_OUT_PAIRS.items() for pair in pairs}
    repairs = wrongs(practised)
    assert not repairs & held
    assert repairs == {(family, *pair) for family, pairs in TRAIN_PAIRS.items() for pair in pairs}


@pytest.mark.parametrize("kind", KINDS)
def test_each_split_holds_out_its_own_thing(kind: str) -> None:
    for seed in range(60):
        assert all(f.name in HELD_OUT_NAMES for f in generate(kind, "names", seed).targets)
        assert all(f.family in HELD_OUT_FAMILIES for f in generate(kind, "families", seed).targets)
        assert all(
            kind in ("question", "rename") or (f.wanted, f.shown) in HELD_OUT_PAIRS[f.family.name]
            for f in generate(kind, "pairs", seed).targets[:1]
        )
        assert len(generate(kind, "larger", seed).functions) > len(generate(kind, TRAIN, seed).functions)
        assert len(generate(kind, "larger", seed).paths) > len(generate(kind, TRAIN, seed).paths)


def test_a_rotation_is_practised_on_practised_repairs_alone() -> None:
    for seed in range(200):
        for f in generate("carry", TRAIN, seed).targets:
            assert (f.wanted, f.shown) in TRAIN_PAIRS[f.family.name]


def test_every_alternative_is_practised_as_right_and_as_wrong() -> None:
    for family in TRAIN_FAMILIES:
        assert {right for right, _ in TRAIN_PAIRS[family.name]} == set(family.options)
        assert {wrong for _, wrong in TRAIN_PAIRS[family.name]} == set(family.options)


def test_held_out_names_are_practised_as_parameters(practised: list[Pebble]) -> None:
    assert set(HELD_OUT_NAMES) <= {word for p in practised for f in p.functions for word in f.parameters}


def test_the_sets_never_change() -> None:
    """The sets are fixed, because a change would make every older measurement incomparable."""
    assert FIRST_HELD_OUT_NAMES == EXPECTED_FIRST_NAMES
    for family, first in EXPECTED_PAIRS.items():
        late = set(family_named(family).late)
        assert HELD_OUT_PAIRS[family][: len(first)] == first
        assert all(late & set(pair) for pair in HELD_OUT_PAIRS[family][len(first) :])


def test_each_split_holds_out_enough_for_an_interval() -> None:
    """Thirty clusters: with three or four, an interval says next to nothing."""
    assert len(HELD_OUT_NAMES) == len(set(HELD_OUT_NAMES)) >= 30
    assert sum(map(len, HELD_OUT_PAIRS.values())) >= 30
    assert len(HELD_OUT_FAMILIES) >= 30
    for split in ("names", "pairs", "families"):
        clusters = {generate("fix", split, seed).cluster for seed in range(400)}
        assert len(clusters) >= 30


EXPECTED_FIRST_NAMES = ("rho", "iota", "kappa", "alpha")
EXPECTED_PAIRS = {
    "operator": (("%", "*"), ("%", "+"), ("%", "**"), ("+", "//"), ("//", "*")),
    "index": (("0", "-1"), ("0", "1")),
    "constant": (("6", "3"), ("3", "4"), ("6", "2"), ("3", "2"), ("4", "7")),
}
