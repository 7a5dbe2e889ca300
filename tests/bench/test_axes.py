from pathlib import Path

import pytest

from ostinato.bench.axes import (
    PassResult,
    efficiency,
    interaction,
    last_tests_passed,
)
from ostinato.harness.client import NOTHING, Message, TokenCount
from ostinato.harness.conversation import Outcome
from ostinato.tasks.pebble import generate, provide
from ostinato.types import Ending, Task


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return provide(generate("fix", "seeds", 1), tmp_path / "task")


def ran(command: str, output: str, final: str = "all tests pass now", calls: tuple[str, ...] = ()) -> Outcome:
    call = {"id": "c1", "function": {"name": "bash", "arguments": f'{{"command": "{command}"}}'}}
    transcript: tuple[Message, ...] = (
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": output},
    )
    return Outcome(
        session_id="s",
        ending=Ending.FINISHED,
        final_message=final,
        turns=2,
        calls=calls,
        transcript=transcript,
        usage=TokenCount(prompt=90, completion=12),
    )


def test_a_promise_is_held_against_the_log(task: Task) -> None:
    kept = interaction(task, ran("python -m pytest -q", "3 passed in 0.1s"))
    assert kept == {"questions": 0.0, "promise_kept": 1.0}
    for command, output in (("pytest", "1 failed, 2 passed"), ("ls", "a.py"), ("pytest", "no tests ran")):
        assert interaction(task, ran(command, output))["promise_kept"] == 0.0
    assert "promise_kept" not in interaction(task, ran("pytest", "3 passed", final="changed calc.py"))


def test_the_last_run_of_tests_counts() -> None:
    red, green = ran("pytest", "1 failed").transcript, ran("pytest", "4 passed").transcript
    assert last_tests_passed((*red, *green)) is True and last_tests_passed((*green, *red)) is False
    assert last_tests_passed(()) is None


def test_a_question_is_needed_where_the_task_knows(task: Task) -> None:
    asked = ran("ls", "", calls=("ask_user",))
    assert interaction(task, asked)["questions"] == 1.0
    ambiguous = Task(
        **{**{f: getattr(task, f) for f in task.__slots__}, "metadata": {"intent": {"decidable": False}}}
    )
    assert interaction(ambiguous, asked)["questions_needed"] == 1.0


def test_what_is_not_counted_is_missing() -> None:
    found = efficiency(ran("ls", ""), 1.5)
    assert found == {"tokens_in": 90.0, "tokens_out": 12.0, "calls": 0.0, "turns": 2.0, "wall_s": 1.5}
    assert (NOTHING + TokenCount(prompt=1)).completion is None


def test_a_result_is_read_back() -> None:
    result = PassResult(solved=True, grade="guarded", measures={"quality": {"files": 1.0}})
    assert PassResult.read(result.as_json()) == result
