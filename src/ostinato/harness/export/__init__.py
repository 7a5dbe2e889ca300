"""Exports of a session's log in formats that others read, each computed from the events.

The `sessions` frontend comes in."""

import json
from collections.abc import Callable, Sequence

from ostinato.extend import Registry, guarded
from ostinato.harness.export import agent_trace, atif, mini, openai
from ostinato.harness.session_log import LogEvent
from ostinato.harness.tools.names import HALVES, shown

Export = Callable[[Sequence[LogEvent]], str]


def _pretty(fold: Callable[[Sequence[LogEvent]], object]) -> Export:
    return lambda events: _text(fold(events), indent=2)


def _rows(fold: Callable[[Sequence[LogEvent]], Sequence[object]]) -> Export:
    return lambda events: "\n".join(_text(row) for row in fold(events))


def _text(value: object, indent: int | None = None) -> str:
    """Return the JSON of a value; a byte of a name that is not UTF-8 is spelled out as the model reads it."""
    whole = json.dumps(value, indent=indent, ensure_ascii=False)
    return HALVES.sub(lambda half: "\\" + shown(half[0]), whole)


FORMATS: Registry[Export] = Registry(
    "exporter",
    {
        "openai": _rows(openai.rows),
        "atif": _pretty(atif.trajectory),
        "mini": _pretty(mini.trajectory),
        "agent-trace": _rows(agent_trace.records),
        "jsonl": lambda events: "".join(event.line().decode() for event in events).rstrip("\n"),
    },
)
"""The exports by the name that `ostinato session export --format` takes."""


def exporter(name: str) -> Callable[[Export], Export]:
    """Return a decorator that adds a format; the function gets a session's events and returns its text."""

    def add(function: Export) -> Export:
        FORMATS.add(name, guarded(f"exporter {name}", function))
        return function

    return add
