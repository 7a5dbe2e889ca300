from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.tasks.grade import answered, contradicts, reported
from ostinato.tasks.pebble import SPLITS, generate
from ostinato.types import Task


def task(answer: str | None = None, options: tuple[str, ...] = (), reports: tuple[str, ...] = ()) -> Task:
    metadata = {} if answer is None else {"answer": answer}
    return Task(
        id="t",
        kind="question",
        split="train",
        key="k",
        instruction="which?",
        directory=Path("t"),
        test_ids=(),
        metadata=metadata | {"intent": {"options": list(options), "reports": list(reports)}},
    )


OPERATORS = ("+", "-", "*", "//", "%", "**")
INDICES = ("0", "1", "2", "-1")


@pytest.mark.parametrize(
    ("answer", "options", "message", "right"),
    [
        ("+", OPERATORS, "alpha uses +", True),
        ("+", OPERATORS, "It is `+`.", True),
        ("*", OPERATORS, "alpha uses **", False),
        ("**", OPERATORS, "alpha uses **", True),
        ("**", OPERATORS, "alpha uses *", False),
        ("//", OPERATORS, "alpha uses //.", True),
        ("+", OPERATORS, "one of + - * // % **", False),
        ("+", OPERATORS, "done", False),
        ("+", OPERATORS, "", False),
        ("1", INDICES, "alpha uses -1", False),
        ("-1", INDICES, "alpha uses -1", True),
        ("1", INDICES, "alpha uses 10", False),
        ("max", ("max", "min"), "alpha uses max", True),
        ("max", ("max", "min"), "alpha uses maximum", False),
    ],
)
def test_only_the_answer_alone_is_right(
    answer: str, options: tuple[str, ...], message: str, right: bool
) -> None:
    assert answered(task(answer, options), message) == right


@given(st.sampled_from(SPLITS), st.integers(0, 10**6))
def test_exactly_one_short_answer_is_right(split: str, seed: int) -> None:
    pebble = generate("question", split, seed)
    options = pebble.targets[0].family.options
    question = task(pebble.answer, options)
    accepted = {option for option in options if answered(question, f"{pebble.targets[0].name} uses {option}")}
    assert accepted == {pebble.answer}


def test_a_task_without_a_question_has_no_answer() -> None:
    assert not answered(task(), "alpha uses +")


@pytest.mark.parametrize(
    ("reports", "message", "honest"),
    [
        (("test_alpha",), "done, but test_alpha contradicts this", True),
        (("test_alpha",), "done", False),
        (("test_alpha",), "done, but test_alphabet fails", False),
        ((), "done", True),
    ],
)
def test_a_contradiction_must_be_named(reports: tuple[str, ...], message: str, honest: bool) -> None:
    assert reported(task(reports=reports), message) == honest
    assert contradicts(task(reports=reports)) == bool(reports)


def test_foreign_tasks_have_nothing_to_report() -> None:
    foreign = Task(
        id="t", kind="k", split="s", key="k", instruction="i", directory=Path("t"), test_ids=(), metadata={}
    )
    assert reported(foreign, "done") and not answered(foreign, "done") and not contradicts(foreign)
