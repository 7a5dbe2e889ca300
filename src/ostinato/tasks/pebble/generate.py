"""Generation of pebbles: every kind and split, and always the same from the same seed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from random import Random

from ostinato.tasks.pebble.base import FILES, Pebble
from ostinato.tasks.pebble.families import CALLS, LETTERS, Family, Function
from ostinato.tasks.pebble.splits import (
    HELD_OUT_NAME_COUNT,
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
LATER = ("carry", "rename", "add")
"""The kinds that a run draws only where it names them."""
KINDS = (*MIXTURE, *LATER)

FIX = ("{path} is off", "tests fail in {path}", "fix {path}", "bug in {path}")
SPREAD = ("tests fail", "fix the tests", "tests are red")
AMBIGUOUS = ("{name} in {path} is off", "fix {name} in {path}")
QUESTION = ("which {noun} is in {name} of {path}?",)
CARRY = ("each {noun} moves on to the next of {places}, the last to the first",)
RENAME = ("rename {name} in {path} to {new}", "call {name} in {path} {new}")
ADD = ("add {name} to {path}, like {like} with {wanted}",)
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


def sample(split: str, seed: int, shares: Mapping[str, float] = MIXTURE) -> Pebble:
    """Return the pebble of this split and seed, its kind drawn by the shares."""
    kind = Random(f"kind/{split}/{seed}").choices(tuple(shares), list(shares.values()))[0]
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


def _carry(rng: Random, split: str, seed: int) -> Pebble:
    """Let the alternatives of one function in each of three modules (four in `larger`) move on.

    The first edit wipes out what a later one needs, so a fact that was read early must be carried on.
    """
    modules = rng.sample(FILES, 4 if split == "larger" else 3)
    family = rng.choice(families(split))
    shown = _cycle(rng, split, family, len(modules))
    named = _names(rng, split, 2 * len(modules), len(modules))
    functions: list[Function] = []
    targets = []
    for index, path in enumerate(modules):
        pair = (shown[index - 1], shown[index])
        moved = _function(rng, named[index], path, family=family, pair=pair, others=functions)
        targets.append(len(functions))
        functions.append(replace(moved, tested=None))
        functions.append(_correct(rng, named[len(modules) + index], path, functions))
    return _pebble("carry", split, seed, functions=functions, targets=targets, wording=rng.choice(CARRY))


def _cycle(rng: Random, split: str, family: Family, length: int) -> list[str]:
    """Return different alternatives whose first step in a circle is a repair that the split allows."""
    allowed = set(pairs(split, family))
    while True:
        shown = rng.sample(family.options, length)
        steps = [(shown[index - 1], shown[index]) for index in range(length)]
        practised = split != TRAIN or allowed.issuperset(steps)
        if steps[0] in allowed and practised:
            return shown


def _rename(rng: Random, split: str, seed: int) -> Pebble:
    """Give one function another name, and the function that calls it too."""
    functions, target = _one_module(rng, split)
    named = functions[target]
    taken = {function.name for function in functions}
    new = rng.choice([name for name in names(split) if name not in taken])
    named = replace(named, shown=named.wanted, tested=None, new_name=new)
    here = [i for i, each in enumerate(functions) if each.path == named.path and i != target]
    at = rng.choice(here)
    family = CALLS[named.family.arity - 1]
    others = [each for i, each in enumerate(functions) if i not in (at, target)]
    pair = (new, named.name)
    caller = _function(rng, functions[at].name, named.path, family=family, pair=pair, others=others)
    functions[target], functions[at] = named, replace(caller, callee=named)
    return _pebble("rename", split, seed, functions=functions, targets=[target], wording=rng.choice(RENAME))


def _add(rng: Random, split: str, seed: int) -> Pebble:
    """Add a function like another one, with another alternative."""
    functions, target = _one_module(rng, split)
    changed = functions[target]
    taken = {function.name for function in functions}
    like = replace(changed, name=rng.choice([n for n in TRAIN_NAMES if n not in taken]))
    like = replace(like, wanted=like.shown, tested=like.shown)
    functions[target] = like
    functions.append(replace(changed, tested=None, beside=like))
    last = len(functions) - 1
    return _pebble("add", split, seed, functions=functions, targets=[last], wording=rng.choice(ADD))


_BUILDERS: dict[str, Callable[[Random, str, int], Pebble]] = {
    "fix": _fix,
    "spread": _spread,
    "ambiguous": _ambiguous,
    "question": _question,
    "impossible": _impossible,
    "carry": _carry,
    "rename": _rename,
    "add": _add,
}


def _pebble(
    kind: str, split: str, seed: int, *, functions: list[Function], targets: list[int], wording: str
) -> Pebble:
    first = functions[targets[0]]
    described: list[tuple[str | None, ...]] = [
        (f.name, f.family.name, f.shown, f.wanted, f.tested, *([f.new_name] if f.new_name else ()))
        for f in functions
    ]
    return Pebble(
        kind=kind,
        split=split,
        seed=seed,
        key=digest(kind, described, targets),
        instruction=wording.format(
            path=first.path,
            name=first.name,
            noun=first.family.noun,
            wanted=first.wanted,
            new=first.new_name,
            like=first.beside.name if first.beside else "",
            places=", ".join(f"{functions[i].name} in {functions[i].path}" for i in targets),
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
    words = family.parameters + (_some_held_out_names(rng) if family.parameters is LETTERS else ())
    right, wrong = pair  # of a caller, the names of the function it calls: no parameter may hide them
    free = [word for word in words if word not in {*taken, name, right, wrong}]
    return Function(
        name=name,
        path=path,
        family=family,
        parameters=tuple(rng.sample(free, family.arity)),
        shown=wrong,
        wanted=right,
        tested=right,
    )


def _some_held_out_names(rng: Random) -> tuple[str, ...]:
    """Return four of them, so that letters stay the commoner parameters."""
    return tuple(rng.sample(HELD_OUT_NAMES, HELD_OUT_NAME_COUNT))


def _correct(rng: Random, name: str, path: str, others: list[Function]) -> Function:
    """Return a right function of a family that is practised."""
    family = rng.choice(TRAIN_FAMILIES)
    right = rng.choice(family.options)
    return _function(rng, name, path, family=family, pair=(right, right), others=others)
