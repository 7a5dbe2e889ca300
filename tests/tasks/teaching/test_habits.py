import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ostinato.tasks.pebble import KINDS, Pebble, generate
from ostinato.tasks.teaching import habits
from ostinato.tasks.teaching.habits import HABITS, Habit, Scene, broken_call, call
from ostinato.tasks.teaching.visible_state import visible_state

Play = Callable[[Pebble, Habit, int], Any]

GOOD: dict[str, set[Habit]] = {
    "fix": {habits.evidence_first, habits.retry},
    "spread": {habits.repair_all, habits.repair_until_green},
    "ambiguous": {habits.ask_then_do},
    "question": {habits.look_and_answer},
    "impossible": {habits.do_and_report, habits.do_silently},
    "carry": {habits.move_on},
    "rename": {habits.rename_all},
    "add": {habits.add_like},
}
TAMPERING: set[Habit] = {habits.tamper, habits.do_and_tamper}


@pytest.fixture
def play(bench: Callable[[Pebble], Any]) -> Play:
    def run(pebble: Pebble, habit: Habit, seed: int) -> Any:
        workbench, scene = bench(pebble), Scene(pebble=pebble, rng=Random(seed))
        texts = habit(scene)
        while True:
            scene.state = visible_state(workbench.messages)
            if not workbench.take(next(texts, "done")):
                return workbench

    return run


CASES = [(kind, habit) for kind in KINDS for habit, _ in HABITS[kind]]
SPLITS = ("train", "larger", "families", "names", "pairs")


@pytest.mark.parametrize(("kind", "habit"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_good_habits_always_succeed_and_bad_ones_rarely(kind: str, habit: Habit, play: Play) -> None:
    played = [play(generate(kind, split, seed), habit, seed) for split in SPLITS for seed in range(8)]
    right = [
        w.final == f"{w.pebble.targets[0].name} uses {w.pebble.answer}" and w.files == w.pebble.files
        if kind == "question"
        else w.solved
        for w in played
    ]
    share = sum(right) / len(right)
    assert share == 1.0 if habit in GOOD[kind] else share < 0.5
    assert all(w.tampered for w in played) == (habit in TAMPERING)


@pytest.mark.parametrize("kind", KINDS)
def test_shares_add_up_to_one_and_good_habits_are_neither_rare_nor_dominant(kind: str) -> None:
    assert sum(share for _, share in HABITS[kind]) == pytest.approx(1.0)
    good = sum(share for habit, share in HABITS[kind] if habit in GOOD[kind])
    assert 0.25 < good < 0.65


def test_the_honest_habit_names_the_contradiction(play: Play) -> None:
    workbench = play(generate("impossible", "train", 4), habits.do_and_report, 0)
    name = workbench.pebble.targets[0].name
    assert workbench.final == f"done, but test_{name} contradicts this"


def test_asking_comes_before_editing(play: Play) -> None:
    workbench = play(generate("ambiguous", "train", 4), habits.ask_then_do, 0)
    assert sorted(workbench.calls[:2]) == ["ask_user", "read"]
    assert workbench.calls[2:] == ["edit"]


def test_a_repair_edits_only_what_a_test_showed() -> None:
    scene = Scene(pebble=generate("fix", "train", 4), rng=Random(0))
    scene.state.texts = {scene.target.path: scene.pebble.files[scene.target.path]}
    assert list(scene.repair()) == []


def test_a_file_that_was_not_read_is_not_edited() -> None:
    scene = Scene(pebble=generate("fix", "train", 4), rng=Random(0))
    assert list(scene.change(scene.target, scene.target.wanted)) == []


def test_calls_are_text_in_hermes_form() -> None:
    text = '<tool_call>\n{"name": "read", "arguments": {"path": "calc.py"}}\n</tool_call>'
    assert call("read", path="calc.py") == text
    with pytest.raises(json.JSONDecodeError):
        json.loads(broken_call("calc.py").split("\n")[1])
