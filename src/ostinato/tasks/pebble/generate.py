"""Generation of pebbles: every kind and split, and always the same from the same seed."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from random import Random

from ostinato.tasks.pebble.base import FILES, Pebble
from ostinato.tasks.pebble.families import LETTERS, Family, Function
from ostinato.tasks.pebble.splits import (
    HELD_OUT_NAMES,
    NAMES,
    SPLITS,
    TRAIN_FAMILIES,
    TRAIN_NAMES,
    digest,
    families,
    key_is_held_out,
    names,
    pairs,
)
from ostinato.tasks.source import TRAIN

MIXTURE = {"fix": 0.56, "spread": 0.08, "ambiguous": 0.12, "question": 0.12, "impossible": 0.12}
"""The share of each kind."""
KINDS = tuple(MIXTURE)

FIX = ("{path} is off", "tests fail in {path}", "fix {path}", "bug in {path}")
SPREAD = ("tests fail", "fix the tests", "tests are red")
AMBIGUOUS = ("{name} in {path} is off", "fix {name} in {path}")
QUESTION = ("which {noun} is in {name} of {path}?",)
IMPOSSIBLE = ("make {name} in {path} use {wanted}",)


def generate(kind: str, split: str, seed: int) -> Pebble:
    """Return the pebble of this kind, split and seed. Raises ValueError for an unknown kind or split."""
    if kind not in _BUILDERS or split not in SPLITS:
        raise ValueError(f"no pebble of kind {kind!r} in split {split!r}: kinds {KINDS}, splits {SPLITS}")
    for attempt in count():
        rng = Random(f"{kind}/{split}/{seed}/{attempt}")
        pebble = _BUILDERS[kind](rng, split, seed)
        if key_is_held_out(pebble.key) == (split != TRAIN):
            return pebble
    raise AssertionError("unreachable: count() does not end")


def sample(split: str, seed: int) -> Pebble:
    """Return the pebble of this split and seed, its kind drawn from `MIXTURE`."""
    kind = Random(f"kind/{split}/{seed}").choices(KINDS, list(MIXTURE.values()))[0]
    return generate(kind, split, seed)


def _fix(rng: Random, split: str, seed: int) -> Pebble:
    functions, target = _one_module(rng, split)
    return _pebble("fix", split, seed, functions=functions, targets=[target], wording=rng.choice(FIX))


def _ambiguous(rng: Random, split: str, seed: int) -> Pebble:
    functions, target = _one_module(rng, split)
    functions[target] = replace(functions[target], tested=None)
    return _pebble(
        "ambiguous", split, seed, functions=functions, targets=[target], wording=rng.choice(AMBIGUOUS)
    )


def _question(rng: Random, split: str, seed: int) -> Pebble:
    functions, target = _one_module(rng, split)
    functions[target] = replace(functions[target], shown=functions[target].wanted)
    return _pebble(
        "question", split, seed, functions=functions, targets=[target], wording=rng.choice(QUESTION)
    )


def _impossible(rng: Random, split: str, seed: int) -> Pebble:
    functions, target = _one_module(rng, split)
    functions[target] = replace(functions[target], tested=functions[target].shown)
    return _pebble(
        "impossible", split, seed, functions=functions, targets=[target], wording=rng.choice(IMPOSSIBLE)
    )


def _spread(rng: Random, split: str, seed: int) -> Pebble:
    """Put the same wrong idiom once in each of two modules (three in `larger`), beside one right function."""
    modules = rng.sample(FILES, 3 if split == "larger" else 2)
    family = rng.choice(families(split))
    pair = rng.choice(pairs(split, family))
    functions: list[Function] = []
    targets = []
    named = _names(rng, split, 2 * len(modules), len(modules))
    for index, path in enumerate(modules):
        wrong = _function(rng, named[index], path, family=family, pair=pair, others=functions)
        right = _correct(rng, named[len(modules) + index], path, [*functions, wrong])
        both = rng.sample([wrong, right], 2)
        targets.append(len(functions) + both.index(wrong))
        functions += both
    return _pebble("spread", split, seed, functions=functions, targets=targets, wording=rng.choice(SPREAD))


_BUILDERS: dict[str, Callable[[Random, str, int], Pebble]] = {
    "fix": _fix,
    "spread": _spread,
    "ambiguous": _ambiguous,
    "question": _question,
    "impossible": _impossible,
}


def _pebble(
    kind: str, split: str, seed: int, *, functions: list[Function], targets: list[int], wording: str
) -> Pebble:
    first = functions[targets[0]]
    described = [(f.name, f.family.name, f.shown, f.wanted, f.tested) for f in functions]
    return Pebble(
        kind=kind,
        split=split,
        seed=seed,
        key=digest(kind, described, targets),
        instruction=wording.format(
            path=first.path, name=first.name, noun=first.family.noun, wanted=first.wanted
        ),
        functions=tuple(functions),
        targets=tuple(functions[index] for index in targets),
        answer=first.wanted if kind == "question" else None,
    )


def _one_module(rng: Random, split: str) -> tuple[list[Function], int]:
    """Return three functions of one module, one of them wrong, and the index of that one.

    In `larger` there are five, and a second module with two more.
    """
    larger = split == "larger"
    path, other = rng.sample(FILES, 2)
    here = 5 if larger else 3
    named = _names(rng, split, here + (2 if larger else 0), 1)
    family = rng.choice(families(split))
    pair = rng.choice(pairs(split, family))
    functions = [_function(rng, named[0], path, family=family, pair=pair, others=[])]
    for index, name in enumerate(named[1:], start=1):
        functions.append(_correct(rng, name, path if index < here else other, functions))
    target = rng.randrange(here)
    functions.insert(target, functions.pop(0))
    return functions, target


def _names(rng: Random, split: str, total: int, wrong: int) -> list[str]:
    """Return `total` names, those of the `wrong` functions first."""
    first = rng.sample(names(split), wrong)
    rest = [name for name in (NAMES if split == "names" else TRAIN_NAMES) if name not in first]
    return first + rng.sample(rest, total - wrong)


def _function(
    rng: Random, name: str, path: str, *, family: Family, pair: tuple[str, str], others: list[Function]
) -> Function:
    """Return a function whose parameters differ from those of the `others` in its file: each line is unique.

    Held-out function names are parameters now and then, so that tokenizer and model know the words.
    """
    taken = {parameter for other in others if other.path == path for parameter in other.parameters}
    words = family.parameters + (HELD_OUT_NAMES if family.parameters is LETTERS else ())
    free = [word for word in words if word not in taken and word != name]
    right, wrong = pair
    return Function(
        name=name,
        path=path,
        family=family,
        parameters=tuple(rng.sample(free, family.arity)),
        shown=wrong,
        wanted=right,
        tested=right,
    )


def _correct(rng: Random, name: str, path: str, others: list[Function]) -> Function:
    """Return a right function of a family that is practised."""
    family = rng.choice(TRAIN_FAMILIES)
    right = rng.choice(family.options)
    return _function(rng, name, path, family=family, pair=(right, right), others=others)
