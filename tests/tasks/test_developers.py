from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from ostinato.tasks.developers import SHRUG, Developer, Intent, population
from ostinato.tasks.pebble import KINDS, generate, write
from ostinato.types import Ending, SignalKind, Task


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Task]:
    directory = tmp_path_factory.mktemp("tasks")
    return {kind: write(generate(kind, "train", 3), directory / kind) for kind in KINDS}


def developer(
    seed: int = 0, patience: float = 0.8, strictness: float = 0.7, temper: float = 0.5
) -> Developer:
    return Developer(user="ada", patience=patience, strictness=strictness, temper=temper, rng=Random(seed))


def shares(person: Developer, turns: int, ending: Ending, changed: bool, works: bool) -> dict[str, float]:
    """How often each signal is observed, over many sessions."""
    n = 2000
    counts = Counter(kind for _ in range(n) for kind, _ in person.react(turns, ending, changed, works))
    return {kind: count / n for kind, count in counts.items()}


async def test_the_answer_comes_from_the_intent_card(tasks: dict[str, Task]) -> None:
    wanted = generate("ambiguous", "train", 3).targets[0].wanted
    assert await developer().on(tasks["ambiguous"]).answer("which one?") == f"use {wanted}"
    assert await developer().on(tasks["fix"]).answer("which one?") == "see the tests"


async def test_nobody_knows_without_a_task_or_a_question(tasks: dict[str, Task]) -> None:
    assert await developer().answer("which one?") == SHRUG
    person = developer().on(tasks["fix"])
    assert await person.answer(" ") == SHRUG
    assert person.asked == 0
    assert await developer().on(replace(tasks["fix"], metadata={})).answer("which one?") == SHRUG


@pytest.mark.parametrize(("kind", "needed"), [("ambiguous", 1.0), ("fix", 0.0), ("question", 0.0)])
async def test_questions_are_judged_by_whether_they_were_needed(
    tasks: dict[str, Task], kind: str, needed: float
) -> None:
    person = developer().on(tasks[kind])
    assert SignalKind.QUESTION_ANSWERED not in dict(person.react(3, Ending.FINISHED, True, True))
    await person.answer("which one?")
    assert dict(person.react(3, Ending.FINISHED, True, True))[SignalKind.QUESTION_ANSWERED] == needed


def test_what_works_is_mostly_kept_and_what_does_not_is_mostly_reverted(tasks: dict[str, Task]) -> None:
    person = developer().on(tasks["fix"])
    good = shares(person, 4, Ending.FINISHED, True, True)
    bad = shares(person, 4, Ending.FINISHED, True, False)
    assert good["edit_kept"] > 0.85 and "complaint" not in good and "edit_reverted" not in good
    assert 0.02 < bad["edit_kept"] < 0.3 < bad["edit_reverted"]
    assert bad["complaint"] > 0.1


def test_each_edit_is_judged_once(tasks: dict[str, Task]) -> None:
    person = developer().on(tasks["fix"])
    for works in (True, False):
        for _ in range(300):
            kinds = [kind for kind, _ in person.react(4, Ending.FINISHED, True, works)]
            judged = [kind for kind in kinds if kind.startswith("edit_")]
            assert len(judged) == (0 if SignalKind.ABANDONED in kinds else 1)


def test_strict_people_overlook_less(tasks: dict[str, Task]) -> None:
    strict, lax = (developer(strictness=s).on(tasks["fix"]) for s in (1.0, 0.0))
    assert "edit_kept" not in shares(strict, 4, Ending.FINISHED, True, False)
    assert shares(lax, 4, Ending.FINISHED, True, False)["edit_kept"] > 0.3


def test_impatient_people_walk_away(tasks: dict[str, Task]) -> None:
    hasty, calm = (developer(patience=p).on(tasks["fix"]) for p in (0.0, 1.0))
    assert shares(hasty, 9, Ending.FINISHED, True, True)["abandoned"] > 0.6
    assert shares(calm, 9, Ending.FINISHED, True, True)["abandoned"] < 0.05


@pytest.mark.parametrize(
    ("changed", "works", "value"), [(False, True, 1.0), (False, False, 0.0), (True, True, 0.0)]
)
def test_a_question_wants_an_answer_and_no_edit(
    tasks: dict[str, Task], changed: bool, works: bool, value: float
) -> None:
    person = developer(temper=0.0).on(tasks["question"])
    reactions = [person.react(2, Ending.FINISHED, changed, works) for _ in range(50)]
    assert [(SignalKind.NO_EDIT_WANTED, value)] in reactions
    assert all(kind in {SignalKind.NO_EDIT_WANTED, SignalKind.ABANDONED} for r in reactions for kind, _ in r)


def test_nothing_done_earns_complaints_and_no_judgement_of_edits(tasks: dict[str, Task]) -> None:
    seen = shares(developer().on(tasks["fix"]), 4, Ending.FINISHED, False, False)
    assert set(seen) <= {"complaint", "abandoned"} and seen["complaint"] > 0.2


def test_our_own_failures_are_not_held_against_the_agent(tasks: dict[str, Task]) -> None:
    assert developer().on(tasks["fix"]).react(1, Ending.INFRASTRUCTURE, False, False) == []


def test_a_population_is_reproducible_and_varied() -> None:
    people, again = population(50, 1), population(50, 1)
    traits = [(p.user, p.patience, p.strictness, p.temper) for p in people]
    assert traits == [(p.user, p.patience, p.strictness, p.temper) for p in again]
    assert len({p.user for p in people}) == 50 == len({p.patience for p in people})
    assert all(0 <= trait <= 1 for _, *person in traits for trait in person)
    assert traits != [(p.user, p.patience, p.strictness, p.temper) for p in population(50, 2)]


def test_the_intent_of_a_foreign_task_is_its_instruction(tasks: dict[str, Task]) -> None:
    intent = Intent.of(replace(tasks["fix"], kind="imported", metadata={}))
    assert (intent.reply, intent.decidable, intent.wants_edit) == (SHRUG, True, True)
