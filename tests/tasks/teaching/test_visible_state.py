import json
from typing import Any

from ostinato.tasks.teaching.visible_state import Failure, visible_state


def exchange(name: str, result: str, **arguments: str) -> list[dict[str, Any]]:
    """Return a call and its result. The id repeats: servers may number calls anew in every turn."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "call-0", "function": function}]},
        {"role": "tool", "tool_call_id": "call-0", "content": result},
    ]


def edit(old: str, new: str, result: str = "ok") -> list[dict[str, Any]]:
    return exchange("edit", result, path="calc.py", old_string=old, new_string=new)


def test_nothing_is_known_at_the_start() -> None:
    state = visible_state([{"role": "system", "content": "s"}, {"role": "user", "content": "calc.py is off"}])
    assert (state.texts, state.failures, state.replies) == ({}, [], [])


def test_edits_are_applied_to_texts_that_were_read() -> None:
    state = visible_state([*exchange("read", "a\nb", path="calc.py"), *edit("b", "c")])
    assert state.texts == {"calc.py": "a\nc"}


def test_refused_edits_and_reads_change_nothing() -> None:
    state = visible_state(
        [
            *exchange("read", "a\nb", path="calc.py"),
            *edit("b", "c", "error: old_string not found"),
            *exchange("read", "error: no such file util.py", path="util.py"),
            *exchange("edit", "ok", path="ops.py", old_string="a", new_string="b"),
        ]
    )
    assert state.texts == {"calc.py": "a\nb"}


def test_the_last_test_run_counts() -> None:
    failed = ".F\n=== short test summary info ===\nFAILED test_calc.py::test_beta - assert [1] == [2, 3]"
    messages = exchange("bash", failed, command="pytest")
    assert visible_state(messages).failures == [
        Failure(path="calc.py", function="beta", got="[1]", wanted="[2, 3]")
    ]
    assert visible_state([*messages, *exchange("bash", "..", command="pytest")]).failures == []


def test_replies_are_kept_and_unanswered_calls_are_not() -> None:
    messages = exchange("ask_user", "use -", question="which one?")
    assert visible_state(messages).replies == ["use -"]
    assert visible_state(messages[:1]).replies == []
