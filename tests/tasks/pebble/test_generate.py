"""Covers tasks/pebble/generate.py and tasks/pebble/base.py."""

import builtins
from collections import Counter
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.tasks.pebble import MIXTURE, SPLITS, Pebble, generate, sample
from ostinato.tasks.pebble.generate import LATER

pebbles = st.builds(generate, st.sampled_from(tuple(MIXTURE)), st.sampled_from(SPLITS), st.integers(0, 10**9))


@given(pebbles)
def test_the_same_seed_makes_the_same_pebble(pebble: Pebble) -> None:
    assert generate(pebble.kind, pebble.split, pebble.seed) == pebble


@given(pebbles)
def test_every_line_is_unique_in_its_file_whatever_is_edited(pebble: Pebble) -> None:
    for function in pebble.functions:
        text = pebble.files[function.path]
        assert text.count(function.line(function.shown)) == 1
        for option in function.family.options:
            assert text.count(function.line(option) + "\n") == (option == function.shown)
            edited = text.replace(function.line(function.shown), function.line(option))
            assert edited.count(function.line(option)) == 1


@given(pebbles)
def test_only_the_targets_are_wrong(pebble: Pebble) -> None:
    wrong = [function for function in pebble.functions if function.shown != function.wanted]
    assert wrong == ([] if pebble.kind == "question" else list(pebble.targets))
    assert len(pebble.changes) == len(wrong)
    assert len(pebble.targets) == ({"larger": 3}.get(pebble.split, 2) if pebble.kind == "spread" else 1)


@given(pebbles)
def test_the_visible_tests_check_what_the_kind_promises(pebble: Pebble) -> None:
    for target in pebble.targets:
        expected = {"ambiguous": None, "impossible": target.shown}.get(pebble.kind, target.wanted)
        assert target.tested == expected
    assert all(f.tested == f.wanted for f in pebble.functions if f not in pebble.targets)


@given(pebbles)
def test_a_spread_has_the_same_wrong_idiom_in_each_file(pebble: Pebble) -> None:
    assert len({(f.family.name, f.wanted, f.shown) for f in pebble.targets}) == 1
    assert len({f.path for f in pebble.targets}) == len(pebble.targets)


@given(pebbles)
def test_protected_files_exist_and_hold_no_code_to_repair(pebble: Pebble) -> None:
    assert set(pebble.protected) | set(pebble.paths) == set(pebble.files)
    assert not set(pebble.protected) & set(pebble.paths)


@given(pebbles)
def test_names_are_unique_and_listed_as_hidden_tests(pebble: Pebble) -> None:
    names = [function.name for function in pebble.functions]
    assert len(set(names)) == len(names)
    assert pebble.test_ids == tuple(f"test_hidden.py::test_{name}" for name in names)


@given(pebbles)
def test_the_answer_is_not_given_away(pebble: Pebble) -> None:
    assert (pebble.answer is not None) == (pebble.kind == "question")
    if pebble.kind == "ambiguous":
        target = pebble.targets[0]
        assert target.name not in "".join(pebble.files[path] for path in pebble.protected)
        assert pebble.intent["reply"] == f"use {target.wanted}"


def test_kinds_are_drawn_by_their_shares() -> None:
    n = 3000
    counts = Counter(sample("train", seed).kind for seed in range(n))
    assert sum(MIXTURE.values()) == pytest.approx(1.0)
    for kind, share in MIXTURE.items():
        assert counts[kind] / n == pytest.approx(share, abs=0.03)


def test_the_key_ignores_wording_and_parameters() -> None:
    keys = Counter(sample("train", seed).key for seed in range(3000))
    assert len(keys) > 2950
    assert generate("fix", "train", 1).key != generate("ambiguous", "train", 1).key


@pytest.mark.parametrize(("kind", "split"), [("fox", "train"), ("fix", "tests")])
def test_unknown_kinds_and_splits_are_refused(kind: str, split: str) -> None:
    with pytest.raises(ValueError, match=r"kinds .*'fix'.* splits .*'train'"):
        generate(kind, split, 0)


later = st.builds(generate, st.sampled_from(LATER), st.sampled_from(SPLITS), st.integers(0, 10**6))


def after(pebble: Pebble) -> dict[str, str]:
    files = pebble.files
    for change in pebble.changes:
        assert files[change.path].count(f"{change.old}\n") == 1
        files[change.path] = files[change.path].replace(f"{change.old}\n", f"{change.new}\n")
    return files


@given(later)
def test_the_later_kinds_are_solved_by_their_changes_alone(pebble: Pebble) -> None:
    """The hidden tests of each kind fail before its changes and pass after all of them, and no fewer."""
    assert generate(pebble.kind, pebble.split, pebble.seed) == pebble
    assert passes(pebble, after(pebble)) and not passes(pebble, pebble.files)
    for left_out in pebble.changes:
        files = after(pebble)
        files[left_out.path] = files[left_out.path].replace(f"{left_out.new}\n", f"{left_out.old}\n")
        assert not passes(pebble, files)


def test_no_parameter_hides_the_new_name_of_a_function() -> None:
    pebble = generate("rename", "names", 179)
    assert passes(pebble, after(pebble))


def passes(pebble: Pebble, files: dict[str, str]) -> bool:
    """Run the hidden tests for real, each path as a module."""
    made = {}
    for path in pebble.paths:
        module = ModuleType(path.removesuffix(".py"))
        exec(files[path], module.__dict__)
        made[module.__name__] = module
    scope: dict[str, Any] = {"__builtins__": {**vars(builtins), "__import__": lambda name, *_: made[name]}}
    try:
        exec(pebble.hidden, scope)
        for test in pebble.test_ids:
            scope[test.split("::")[1]]()
    except (AssertionError, ImportError, NameError):
        return False
    return True


@given(st.sampled_from(SPLITS), st.integers(0, 10**6))
def test_a_rotation_needs_what_its_first_edit_wipes_out(split: str, seed: int) -> None:
    pebble = generate("carry", split, seed)
    shown = [target.shown for target in pebble.targets]
    assert len(set(shown)) == len(shown) == len(pebble.paths)
    assert [target.wanted for target in pebble.targets] == [shown[-1], *shown[:-1]]
    assert all(target.tested is None for target in pebble.targets)


def test_the_later_kinds_are_drawn_where_a_run_names_them() -> None:
    assert {sample("train", seed).kind for seed in range(300)} == set(MIXTURE)
    assert {sample("train", seed, {"carry": 1.0, "add": 1.0}).kind for seed in range(30)} == {"carry", "add"}
