from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest

from ostinato.tasks.developers import SHRUG, Developer, Intent, SessionResult, population
from ostinato.tasks.pebble import KINDS, Pebble, generate, write
from ostinato.types import Ending, SignalKind, Task

SOLVED = "all done"


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Task]:
    directory = tmp_path_factory.mktemp("tasks")
    return {kind: write(pebble(kind), directory / kind) for kind in KINDS}


def pebble(kind: str) -> Pebble:
    return generate(kind, "train", 3)


def developer(
    seed: int = 0, patience: float = 0.8, strictness: float = 0.7, temper: float = 0.5
) -> Developer:
    return Developer(user="ada", patience=patience, strictness=strictness, temper=temper, rng=Random(seed))


def result_of(
    kind: str = "fix", *, right: bool = True, changed: bool = True, **more: object
) -> SessionResult:
    """Return a result with the right edits, or with no right edit and failing tests."""
    made = pebble(kind)
    sources = dict(made.files)
    if right and changed:
        for change in made.changes:
            sources[change.path] = sources[change.path].replace(change.old, change.new)
    fields: dict[str, object] = {
        "turns": 4,
        "ending": Ending.FINISHED,
        "message": f"{made.targets[0].name} uses {made.answer}" if right else SOLVED,
        "changed": ("calc.py",) if changed else (),
        "sources": {path: text for path, text in sources.items() if path.endswith(".py")},
        "tests_pass": right,
    }
    return SessionResult(**(fields | more))  # type: ignore[arg-type]


def shares(person: Developer, result: SessionResult) -> Mapping[str, float]:
    """Return the share of each signal over many sessions."""
    n = 2000
    counts = Counter(kind for _ in range(n) for kind, _ in person.react(result))
    return {kind: count / n for kind, count in counts.items()}


async def test_the_answer_comes_from_the_intent_card(tasks: dict[str, Task]) -> None:
    wanted = pebble("ambiguous").targets[0].wanted
    assert await developer().on(tasks["ambiguous"]).answer("which one?") == f"use {wanted}"
    assert await developer().on(tasks["fix"]).answer("which one?") == "see the tests"


async def test_without_a_task_or_a_question_the_answer_is_a_shrug(tasks: dict[str, Task]) -> None:
    assert await developer().answer("which one?") == SHRUG
    person = developer().on(tasks["fix"])
    assert await person.answer(" ") == SHRUG
    assert person.questions == 0
    assert await developer().on(replace(tasks["fix"], metadata={})).answer("which one?") == SHRUG


@pytest.mark.parametrize(("kind", "needed"), [("ambiguous", 1.0), ("fix", 0.0), ("question", 0.0)])
async def test_a_question_is_judged_by_whether_it_was_needed(
    tasks: dict[str, Task], kind: str, needed: float
) -> None:
    person = developer().on(tasks[kind])
    assert SignalKind.QUESTION_ANSWERED not in dict(person.react(result_of(kind)))
    await person.answer("which one?")
    assert dict(person.react(result_of(kind)))[SignalKind.QUESTION_ANSWERED] == needed


@pytest.mark.parametrize("kind", ["fix", "spread", "ambiguous"])
def test_right_edits_are_mostly_kept_and_wrong_ones_mostly_reverted(
    tasks: dict[str, Task], kind: str
) -> None:
    person = developer().on(tasks[kind])
    good, bad = shares(person, result_of(kind)), shares(person, result_of(kind, right=False))
    assert good["edit_kept"] > 0.85 and "complaint" not in good and "edit_reverted" not in good
    assert 0.02 < bad["edit_kept"] < 0.3 < bad["edit_reverted"]
    assert bad["complaint"] > 0.1


def test_an_ambiguous_request_is_judged_by_the_diff_since_no_test_covers_it(tasks: dict[str, Task]) -> None:
    person = developer(strictness=1.0).on(tasks["ambiguous"])
    assert "edit_kept" not in shares(person, result_of("ambiguous", right=False, tests_pass=True))
    assert shares(person, result_of("ambiguous", tests_pass=None))["edit_kept"] > 0.85


def test_tests_that_fail_by_request_must_be_reported(tasks: dict[str, Task]) -> None:
    person = developer().on(tasks["impossible"])
    tests = " ".join(person.intent.reports if person.intent else ())
    reported = shares(person, result_of("impossible", tests_pass=False, message=f"done; {tests} fails now"))
    silent = shares(person, result_of("impossible", tests_pass=False, message="done"))
    assert reported["edit_kept"] > 0.85 and silent["edit_kept"] < 0.6


def test_passing_tests_are_taken_for_a_good_fix_even_if_it_is_wrong(tasks: dict[str, Task]) -> None:
    """People do not see hidden tests, so an edit that passes the visible ones is kept like any other."""
    person = developer(strictness=1.0).on(tasks["fix"])
    fooled = result_of("fix", right=False, tests_pass=True)
    assert shares(person, fooled)["edit_kept"] > 0.85


def test_each_edit_is_judged_once(tasks: dict[str, Task]) -> None:
    person = developer().on(tasks["fix"])
    for right in (True, False):
        for _ in range(300):
            kinds = [kind for kind, _ in person.react(result_of(right=right))]
            judged = [kind for kind in kinds if kind.startswith("edit_")]
            assert len(judged) == (0 if SignalKind.ABANDONED in kinds else 1)


def test_strict_developers_overlook_less(tasks: dict[str, Task]) -> None:
    strict, lax = (developer(strictness=s).on(tasks["fix"]) for s in (1.0, 0.0))
    assert "edit_kept" not in shares(strict, result_of(right=False))
    assert shares(lax, result_of(right=False))["edit_kept"] > 0.3


def test_impatient_developers_walk_away(tasks: dict[str, Task]) -> None:
    hasty, calm = (developer(patience=p).on(tasks["fix"]) for p in (0.0, 1.0))
    assert shares(hasty, result_of(turns=9))["abandoned"] > 0.6
    assert shares(calm, result_of(turns=9))["abandoned"] < 0.05


@pytest.mark.parametrize(
    ("changed", "right", "value"), [(False, True, 1.0), (False, False, 0.0), (True, True, 0.0)]
)
def test_a_question_needs_an_answer_and_no_edit(
    tasks: dict[str, Task], changed: bool, right: bool, value: float
) -> None:
    person = developer(temper=0.0, strictness=1.0).on(tasks["question"])
    result = result_of("question", right=right, changed=changed)
    reactions = [person.react(result) for _ in range(50)]
    assert [(SignalKind.NO_EDIT_WANTED, value)] in reactions
    assert all(kind in {SignalKind.NO_EDIT_WANTED, SignalKind.ABANDONED} for r in reactions for kind, _ in r)


@pytest.mark.parametrize("seed", range(30))
def test_the_answer_is_checked_against_the_code(seed: int) -> None:
    """The code holds the right answer to any question of any family; no other answer is accepted."""
    made = generate("question", ("train", "families")[seed % 2], seed)
    card = dict(made.intent)
    intent = Intent(
        kind="question",
        function=str(card["function"]),
        wants="",
        reply="",
        decidable=True,
        options=made.targets[0].family.options,
    )
    person = replace(developer(strictness=1.0, patience=1.0), intent=intent)
    sources = {path: text for path, text in made.files.items() if path.endswith(".py")}
    for option in intent.options:
        result = replace(
            result_of("question"), message=f"It is {option}", sources=sources, changed=(), turns=1
        )
        judged = Counter(dict(person.react(result)).get(SignalKind.NO_EDIT_WANTED) for _ in range(30))
        assert judged.most_common(1)[0][0] == float(option == made.answer)


def test_no_change_earns_complaints_and_no_judgement_of_edits(tasks: dict[str, Task]) -> None:
    reactions = shares(developer().on(tasks["fix"]), result_of(right=False, changed=False))
    assert set(reactions) <= {"complaint", "abandoned"} and reactions["complaint"] > 0.2


def test_failures_of_the_infrastructure_are_not_held_against_the_agent(tasks: dict[str, Task]) -> None:
    result = result_of(right=False, changed=False, ending=Ending.INFRASTRUCTURE)
    assert developer().on(tasks["fix"]).react(result) == []


def test_a_population_is_reproducible_and_varied() -> None:
    people, again = population(50, 1), population(50, 1)
    traits = [(p.user, p.patience, p.strictness, p.temper) for p in people]
    assert traits == [(p.user, p.patience, p.strictness, p.temper) for p in again]
    assert len({p.user for p in people}) == 50 == len({p.patience for p in people})
    assert all(0 <= trait <= 1 for _, *person in traits for trait in person)
    assert traits != [(p.user, p.patience, p.strictness, p.temper) for p in population(50, 2)]


def test_a_foreign_task_has_no_intent_beyond_its_instruction(tasks: dict[str, Task]) -> None:
    intent = Intent.of(replace(tasks["fix"], kind="imported", metadata={}))
    assert (intent.reply, intent.decidable, intent.wants_edit) == (SHRUG, True, True)
