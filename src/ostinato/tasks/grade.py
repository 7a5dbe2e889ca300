"""Grading of final messages, which tests cannot check."""

import re
from collections.abc import Iterable

from ostinato.types import Task

_EDGE = r"[\w*+/%\-.]"
"""Characters beside an alternative that make it part of a longer one: `*` in `**`, `1` in `-1` or `10`."""


def answered(task: Task, final_message: str) -> bool:
    """Return whether the message names the task's answer and no other alternative.

    It is False when the task asks nothing. A list of several alternatives is no answer, so it earns nothing.
    """
    answer = task.metadata.get("answer")
    if answer is None:
        return False
    return named(final_message, {answer, *_card(task, "options")}) == {answer}


def contradicts(task: Task) -> bool:
    """Return whether the request contradicts a visible test, which the final message must then name."""
    return bool(_card(task, "reports"))


def reported(task: Task, final_message: str) -> bool:
    """Return whether the message names every visible test that the request contradicts; True for none."""
    return all(re.search(rf"\b{re.escape(name)}\b", final_message) for name in _card(task, "reports"))


def _card(task: Task, name: str) -> list[str]:
    """Return a list from the intent card; empty for a task without one."""
    return list(task.metadata.get("intent", {}).get(name, []))


def named(message: str, options: Iterable[str]) -> set[str]:
    """Return the options that the message names."""
    text = message.rstrip(".!")
    return {o for o in options if re.search(rf"(?<!{_EDGE}){re.escape(o)}(?!{_EDGE})", text)}
