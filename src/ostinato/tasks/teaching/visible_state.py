"""The state that a policy can know from its messages: files read, edits made, tests run, questions answered.

The teacher acts on this and on nothing else of the repository, so a model can learn its demonstrations.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Message = Mapping[str, Any]

FAILED = re.compile(
    r"^FAILED test_(?P<path>\w+\.py)::test_(?P<function>\w+) - "
    r"(?:AssertionError: )?assert (?P<got>.+) == (?P<wanted>.+)$",
    re.MULTILINE,
)
"""One failure in pytest's summary.

pytest writes `AssertionError: ` before it when the explanation has several lines, as for strings.
"""


USAGE = re.compile(r"\n\[\d+ of \d+ tokens used\]$")
"""The line by which a harness that summarises shows how full the context is."""
SUMMARY_QUERY = "Please summarise the conversation"
"""The words with which the harness begins its request for a summary."""


def asks_for_a_summary(messages: Sequence[Message]) -> bool:
    """Return whether the harness wants a summary now."""
    last = messages[-1] if messages else {"role": "", "content": ""}
    return last["role"] == "user" and str(last["content"]).startswith(SUMMARY_QUERY)


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
class VisibleState:
    """The repository as far as it was read, with the policy's own edits."""

    texts: dict[str, str] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    """The failures of the last test run."""
    replies: list[str] = field(default_factory=list)
    edited: set[str] = field(default_factory=set)
    """The files that were edited."""

    def note(self, name: str, arguments: Mapping[str, Any], result: str) -> None:
        """Take in one tool call and its result."""
        result = USAGE.sub("", result)
        if name == "read" and not result.startswith("error"):
            self.texts[arguments["path"]] = result
        elif name == "edit" and result == "ok":
            path = arguments["path"]
            self.edited.add(path)
            if path in self.texts:
                self.texts[path] = self.texts[path].replace(arguments["old_string"], arguments["new_string"])
        elif name == "bash":
            self.failures = [Failure(**match.groupdict()) for match in FAILED.finditer(result)]
        elif name == "ask_user":
            self.replies.append(result)


def visible_state(messages: Sequence[Message]) -> VisibleState:
    """Read messages in OpenAI's format; calls without a result are left out."""
    state = VisibleState()
    for name, arguments, result in _calls(messages):
        state.note(name, arguments, result)
    return state


def _calls(messages: Sequence[Message]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield (tool, arguments, result) of every answered call, in the order of the results."""
    open_calls: dict[str, tuple[str, dict[str, Any]]] = {}
    for message in messages:
        for call in message.get("tool_calls") or ():
            function = call["function"]
            open_calls[call["id"]] = (function["name"], json.loads(function["arguments"]))
        if message["role"] == "tool" and message["tool_call_id"] in open_calls:
            yield (*open_calls.pop(message["tool_call_id"]), message["content"])
