"""The forms in which dialects write values, and the canonical values they stand for."""

import shlex
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from ostinato.harness.errors import InvalidArguments

SHELLS = ("bash", "sh", "zsh")


class Form(StrEnum):
    """The forms in which dialects write the arguments of the tools."""

    PLAIN = "plain"
    """The canonical value itself."""
    MILLISECONDS = "milliseconds"
    """Milliseconds where the tool takes seconds; a part of a second counts as one."""
    ARGV = "argv"
    """A list of words where the tool takes a command line."""
    PLAN = "plan"
    """Steps with a status where the tool takes todos."""
    QUESTION = "question"
    """A list of one question with labelled options."""
    NOTE = "note"
    """A note for the observer, which the tool does not take."""


def read(form: Form, canonical: str, value: Any) -> Mapping[str, Any]:
    """Return the canonical arguments of `value`; raises InvalidArguments for a value that has none."""
    return READERS[form](canonical, value)


def write(form: Form, value: Any) -> Any:
    """Return the value in this form that is read as the canonical `value`; raises ValueError for a form that
    nobody writes."""
    if form not in WRITERS:
        raise ValueError(f"no canonical value is written as a {form}")
    return WRITERS[form](value)


def _plain(canonical: str, value: Any) -> Mapping[str, Any]:
    return {canonical: value}


def _milliseconds(canonical: str, value: int) -> Mapping[str, Any]:
    return {canonical: -(-value // 1000)}


def _argv(canonical: str, value: list[str]) -> Mapping[str, Any]:
    if not value:
        raise InvalidArguments(f"{canonical} is empty")
    if len(value) == 3 and value[0].rpartition("/")[2] in SHELLS and value[1] in ("-c", "-lc"):
        return {canonical: value[2]}
    return {canonical: shlex.join(value)}


def _plan(canonical: str, value: list[Mapping[str, str]]) -> Mapping[str, Any]:
    return {canonical: [{"content": _words(step), "status": step["status"]} for step in value]}


def _words(step: Mapping[str, str]) -> str:
    return step["step"] if "step" in step else step["content"]


def _question(_: str, value: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    if len(value) != 1:
        raise InvalidArguments("ask one question at a time")
    options = [option["label"] for option in value[0].get("options", [])]
    return {"question": value[0]["question"], **({"options": options} if options else {})}


def _nothing(_: str, __: Any) -> Mapping[str, Any]:
    return {}


def _words_of(command: str) -> list[str]:
    """Return the words of a command line; one with a shell's syntax is left to a shell."""
    words = shlex.split(command)
    return words if shlex.join(words) == command else ["bash", "-lc", command]


READERS: Mapping[Form, Callable[[str, Any], Mapping[str, Any]]] = {
    Form.PLAIN: _plain,
    Form.MILLISECONDS: _milliseconds,
    Form.ARGV: _argv,
    Form.PLAN: _plan,
    Form.QUESTION: _question,
    Form.NOTE: _nothing,
}
WRITERS: Mapping[Form, Callable[[Any], Any]] = {
    Form.PLAIN: lambda value: value,
    Form.MILLISECONDS: lambda seconds: 1000 * seconds,
    Form.ARGV: _words_of,
    Form.QUESTION: lambda question: [{"question": question}],
}
"""The forms that a script writes, which knows the canonical tools alone."""
