"""What a policy could know from its messages: files read, edits made, tests run, questions answered.

The teacher acts on this and on nothing else of the repository, so a model can learn its demonstrations.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Message = Mapping[str, Any]

FAILED = re.compile(
    r"^FAILED test_(\w+\.py)::test_(\w+) - (?:AssertionError: )?assert (.+) == (.+)$", re.MULTILINE
)
"""pytest names the error as well when its explanation has several lines, as for strings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failed visible test.

    >>> Failure(path="calc.py", function="alpha", got="-1", wanted="5").got
    '-1'
    """

    path: str
    function: str
    got: str
    wanted: str


@dataclass(slots=True, kw_only=True)
class View:
    """The repository as far as it was seen, own edits included."""

    texts: dict[str, str] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    """Of the last test run."""
    replies: list[str] = field(default_factory=list)

    def note(self, name: str, arguments: Mapping[str, Any], result: str) -> None:
        """Take in one tool call and its result."""
        if name == "read" and not result.startswith("error"):
            self.texts[arguments["path"]] = result
        elif name == "edit" and result == "ok":
            self._edited(arguments["path"], arguments["old_string"], arguments["new_string"])
        elif name == "bash":
            self.failures = [_failure(match) for match in FAILED.finditer(result)]
        elif name == "ask_user":
            self.replies.append(result)

    def _edited(self, path: str, old: str, new: str) -> None:
        if path in self.texts:
            self.texts[path] = self.texts[path].replace(old, new)


def look(messages: Sequence[Message]) -> View:
    """Read messages in OpenAI's format; calls without a result are left out."""
    view = View()
    for name, arguments, result in _calls(messages):
        view.note(name, arguments, result)
    return view


def _failure(match: re.Match[str]) -> Failure:
    path, function, got, wanted = match.groups()
    return Failure(path=path, function=function, got=got, wanted=wanted)


def _calls(messages: Sequence[Message]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """(tool, arguments, result) of every answered call, in order of the results."""
    asked: dict[str, tuple[str, dict[str, Any]]] = {}
    for message in messages:
        for call in message.get("tool_calls") or ():
            function = call["function"]
            asked[call["id"]] = (function["name"], json.loads(function["arguments"]))
        if message["role"] == "tool" and message["tool_call_id"] in asked:
            yield (*asked.pop(message["tool_call_id"]), message["content"])
