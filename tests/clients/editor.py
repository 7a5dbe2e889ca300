"""A script for one small job in whatever harness asks it: read a file, change a line, say that it is done.

It stands where a model stands and speaks the tool names that the prompt offers, so that any client can be
driven through a whole task without weights, and what the gateway recorded can be compared with what was said.

::

    prompt ids ─► text ─► the tools offered ─► the first hand that fits them ─► its next step ─► ids
"""

import json
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ostinato.model.families import Renderer
from ostinato.model.families.hermes import CLOSE, OPEN
from ostinato.model.transcript import messages_of, tools_of
from ostinato.types import GenerateRequest

DONE = "The line is changed."
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""How a harness whose only tool is a shell is told that the work is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One line of one file and what it shall become.

    >>> Change(path="calc.py", before="    return a - b", after="    return a + b").path
    'calc.py'
    """

    path: str
    before: str
    after: str


Step = tuple[str, Mapping[str, Any]]
"""A tool and its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hand:
    """The way to do the job with certain tools."""

    takes: Mapping[str, str]
    """It fits where each of these tools is offered and takes the argument named beside it."""
    steps: Callable[[Change], Sequence[Step]]


class Editor:
    """A policy for `ScriptedEngine`. `said` keeps the ids of every request as they were said."""

    def __init__(self, renderer: Renderer, change: Change) -> None:
        self._renderer = renderer
        self._change = change
        self.said: dict[str, tuple[int, ...]] = {}

    async def __call__(self, request: GenerateRequest) -> tuple[int, ...]:
        tokenizer = self._renderer.tokenizer
        text = say(tokenizer.decode(request.prompt_ids), self._change)
        ids = (*tokenizer.encode(text), self._renderer.stop_ids[0])
        self.said[request.request_id] = ids[: request.max_tokens]
        return ids


def say(prompt: str, change: Change) -> str:
    """The next words after `prompt`: a tool call, or text when no tool is offered or none is left to call."""
    offered = {tool["function"]["name"]: _arguments(tool["function"]) for tool in tools_of(prompt)}
    hand = next((hand for hand in HANDS if _fits(hand, offered)), None)
    if hand is None:
        return _block(change) if "SEARCH/REPLACE" in prompt else DONE
    made = sum(bool(message.get("tool_calls")) for message in messages_of(prompt))
    steps = hand.steps(change)
    return _call(*steps[made]) if made < len(steps) else DONE


def _fits(hand: Hand, offered: Mapping[str, Collection[str]]) -> bool:
    return all(argument in offered.get(tool, ()) for tool, argument in hand.takes.items())


def _arguments(function: Mapping[str, Any]) -> Collection[str]:
    properties: Mapping[str, Any] = function.get("parameters", {}).get("properties", {})
    return properties.keys()


def patch_of(change: Change) -> str:
    """The change in the form that `apply_patch` tools read."""
    body = f"*** Update File: {change.path}\n@@\n-{change.before}\n+{change.after}\n"
    return f"*** Begin Patch\n{body}*** End Patch"


def _call(name: str, arguments: Mapping[str, Any]) -> str:
    return f'I use {name}.\n{OPEN}{{"name": {json.dumps(name)}, "arguments": {json.dumps(arguments)}}}{CLOSE}'


def _block(change: Change) -> str:
    """The change as the text protocol of harnesses without tools."""
    head, tail = "<" * 7 + " SEARCH", ">" * 7 + " REPLACE"
    middle = "=" * 7
    name = change.path
    return f"{DONE}\n\n{name}\n```\n{head}\n{change.before}\n{middle}\n{change.after}\n{tail}\n```\n"


def _show(change: Change) -> str:
    return f"cat {shlex.quote(change.path)}"


def _substitute(change: Change) -> str:
    before = re.sub(r"([\\/.*^$\[\]])", r"\\\1", change.before)
    after = re.sub(r"([\\/&])", r"\\\1", change.after)
    return f"sed -i {shlex.quote(f's/^{before}$/{after}/')} {shlex.quote(change.path)}"


def _shell(tool: str, argument: str) -> Callable[[Change], Sequence[Step]]:
    commands = (_show, _substitute, lambda _: SUBMIT)
    return lambda change: [(tool, {argument: command(change)}) for command in commands]


def _cline_steps(change: Change) -> Sequence[Step]:
    return [
        ("read_files", {"files": [{"path": change.path}]}),
        ("editor", {"path": change.path, "old_text": change.before, "new_text": change.after}),
    ]


def _pi_steps(change: Change) -> Sequence[Step]:
    edit = {"oldText": change.before, "newText": change.after}
    return [("read", {"path": change.path}), ("edit", {"path": change.path, "edits": [edit]})]


def _codex_steps(change: Change) -> Sequence[Step]:
    return [("exec_command", {"cmd": _show(change)}), ("apply_patch", {"input": patch_of(change)})]


def _read_and_edit(reading: tuple[str, str], editing: tuple[str, str, str, str]) -> Hand:
    """A hand for a tool and its argument that reads, and one with its path, old and new text that edits."""
    (read, seen), (edit, path, old, new) = reading, editing
    return Hand(
        takes={read: seen, edit: old},
        steps=lambda change: [
            (read, {seen: change.path}),
            (edit, {path: change.path, old: change.before, new: change.after}),
        ],
    )


HANDS = (
    _read_and_edit(("Read", "file_path"), ("Edit", "file_path", "old_string", "new_string")),
    _read_and_edit(("Read", "filepath"), ("Edit", "file_path", "old_string", "new_string")),
    _read_and_edit(("read", "filePath"), ("edit", "filePath", "oldString", "newString")),
    _read_and_edit(("read", "path"), ("edit", "path", "old_string", "new_string")),
    _read_and_edit(("read_file", "file_path"), ("edit", "file_path", "old_string", "new_string")),
    Hand(takes={"read": "path", "edit": "edits"}, steps=_pi_steps),
    Hand(takes={"read_files": "files", "editor": "old_text"}, steps=_cline_steps),
    Hand(takes={"exec_command": "cmd", "apply_patch": "input"}, steps=_codex_steps),
    Hand(takes={"exec_command": "cmd"}, steps=_shell("exec_command", "cmd")),
    Hand(takes={"shell_command": "command"}, steps=_shell("shell_command", "command")),
    Hand(takes={"bash": "command"}, steps=_shell("bash", "command")),
)
"""The first that fits is used."""
