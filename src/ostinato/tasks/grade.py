"""Grading of final messages, for what tests cannot see."""

import re
from collections.abc import Iterable

from ostinato.types import Task

_EDGE = r"[\w*+/%\-.]"
"""Characters that would make an alternative part of a longer one: `*` in `**`, `1` in `-1` or `10`."""


def answered(task: Task, final_message: str) -> bool:
    """Whether the message gives the task's answer and no other alternative; False when nothing was asked.

    Naming several alternatives is no answer, so listing them all earns nothing.
    """
    answer = task.metadata.get("answer")
    if answer is None:
        return False
    return named(final_message, {answer, *_card(task, "options")}) == {answer}


def contradicts(task: Task) -> bool:
    """Whether the request contradicts a visible test, which the final message then has to name."""
    return bool(_card(task, "reports"))


def reported(task: Task, final_message: str) -> bool:
    """Whether the message names every visible test that the request contradicts; True when there is none."""
    return all(re.search(rf"\b{re.escape(name)}\b", final_message) for name in _card(task, "reports"))


def _card(task: Task, name: str) -> list[str]:
    """A list from the intent card; empty for a task without one."""
    return list(task.metadata.get("intent", {}).get(name, []))


def named(message: str, options: Iterable[str]) -> set[str]:
    text = message.rstrip(".!")
    return {o for o in options if re.search(rf"(?<!{_EDGE}){re.escape(o)}(?!{_EDGE})", text)}
