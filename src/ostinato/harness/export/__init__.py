"""Exports of a session's log in formats that others read, each computed from the events.

The `sessions` frontend comes in."""

import json
from collections.abc import Callable, Mapping, Sequence

from ostinato.harness.export import agent_trace, atif, mini, openai
from ostinato.harness.session_log import LogEvent

Export = Callable[[Sequence[LogEvent]], str]


def _pretty(fold: Callable[[Sequence[LogEvent]], object]) -> Export:
    return lambda events: json.dumps(fold(events), indent=2, ensure_ascii=False)


def _rows(fold: Callable[[Sequence[LogEvent]], Sequence[object]]) -> Export:
    return lambda events: "\n".join(json.dumps(row, ensure_ascii=False) for row in fold(events))


FORMATS: Mapping[str, Export] = {
    "openai": _rows(openai.rows),
    "atif": _pretty(atif.trajectory),
    "mini": _pretty(mini.trajectory),
    "agent-trace": _rows(agent_trace.records),
    "jsonl": lambda events: "".join(event.line().decode() for event in events).rstrip("\n"),
}
"""The exports by the name that `ostinato session export --format` takes."""
