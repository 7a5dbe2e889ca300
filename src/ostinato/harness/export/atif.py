"""ATIF 1.8, the trajectory format of the Harbor benchmarks. What only ostinato has lies under `extra`."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ostinato import __version__
from ostinato.harness.conversation import undone
from ostinato.harness.session_log import LogEvent, LogEventKind

VERSION = "ATIF-v1.8"
NOTED = (
    LogEventKind.CHECKPOINT,
    LogEventKind.EDIT,
    LogEventKind.ANSWERED,
    LogEventKind.CANCELLED,
    LogEventKind.SUMMARY,
    LogEventKind.OUTCOME,
)
"""The events that are kept beside the step they follow."""
Step = dict[str, Any]


def trajectory(events: Sequence[LogEvent]) -> dict[str, Any]:
    """Return the whole session as one document."""
    first = events[0].data
    steps: list[Step] = []
    for event in events:
        _take(event, steps)
    for number, step in enumerate(steps, 1):
        step["step_id"] = number
    tokens = [event.data["tokens"] for event in events if event.kind is LogEventKind.REPLY]
    return {
        "schema_version": VERSION,
        "session_id": first["id"],
        "trajectory_id": first["id"],
        "agent": {
            "name": "ostinato",
            "version": __version__,
            "model_name": "ostinato",
            "tool_definitions": first["tools"],
            "extra": {"profile": first["profile"], "harness": first["harness"]},
        },
        "steps": steps,
        "final_metrics": {"total_steps": len(steps), "extra": {"last_tokens": tokens[-1] if tokens else 0}},
    }


def _take(event: LogEvent, steps: list[Step]) -> None:
    data = event.data
    match event.kind:
        case LogEventKind.SESSION:
            steps.append(_step(event, "system", data["system"]))
        case LogEventKind.USER:
            steps.append(_step(event, "user", data["text"]))
        case LogEventKind.UNDO:
            steps.append(_step(event, "user", undone(data["restored"], data["left"])))
        case LogEventKind.REPLY:
            steps.append(_agent_step(event))
        case LogEventKind.OBSERVATION:
            result = {
                "source_call_id": data["id"],
                "content": data["text"],
                "extra": {"error": data["error"]},
            }
            steps[-1].setdefault("observation", {"results": []})["results"].append(result)
        case kind if kind in NOTED:
            steps[-1].setdefault("extra", {}).setdefault("events", []).append({"kind": kind.value, **data})


def _agent_step(event: LogEvent) -> Step:
    data = event.data
    calls = [
        {
            "tool_call_id": call["id"],
            "function_name": call["function"]["name"],
            "arguments": json.loads(call["function"]["arguments"]),
        }
        for call in data["message"].get("tool_calls", ())
    ]
    names = ("turn", "finish", "broken", "arm", "version")
    step = _step(event, "agent", data["message"]["content"] or "", extra={name: data[name] for name in names})
    step |= {"llm_call_count": 1, "metrics": {"extra": {"total_tokens": data["tokens"]}}}
    return step | ({"tool_calls": calls} if calls else {})


def _step(event: LogEvent, source: str, message: str, **more: Any) -> Step:
    at = datetime.fromtimestamp(event.at, UTC).isoformat().replace("+00:00", "Z")
    return {"step_id": 0, "timestamp": at, "source": source, "message": message, **more}
