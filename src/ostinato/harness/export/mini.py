"""The trajectory of mini-swe-agent in its format mini-swe-agent-1.1, which its inspector opens."""

import json
from collections.abc import Sequence
from typing import Any

from ostinato import __version__
from ostinato.harness.conversation import messages
from ostinato.harness.session_log import LogEvent, LogEventKind

FORMAT = "mini-swe-agent-1.1"
STATUS = {
    "finished": "Submitted",
    "turn_limit": "LimitsExceeded",
    "token_limit": "LimitsExceeded",
    "broken": "RepeatedFormatError",
    "abandoned": "UserInterruption",
}
"""Our endings in its words; an ending that is not here stays as it is."""


def trajectory(events: Sequence[LogEvent]) -> dict[str, Any]:
    """Return the whole session. Costs are not known and are 0."""
    ending = next((event.data["ending"] for event in reversed(events) if "ending" in event.data), "")
    said = messages(events)
    final = next((message["content"] for message in reversed(said) if message["role"] == "assistant"), None)
    status = STATUS.get(ending, ending)
    replies = sum(event.kind is LogEventKind.REPLY for event in events)
    return {
        "info": {
            "model_stats": {"instance_cost": 0.0, "api_calls": replies},
            "config": {
                "agent": {"system_template": events[0].data["system"], "profile": events[0].data["profile"]},
                "agent_type": "ostinato.harness.agent.Agent",
                "model": {"model_name": "ostinato"},
                "environment": {"cwd": events[0].data["root"]},
            },
            "mini_version": f"ostinato {__version__}",
            "exit_status": status,
            "submission": final or "",
        },
        "messages": [
            *_with_extra(events, said),
            {
                "role": "exit",
                "content": final or "",
                "extra": {"exit_status": status, "submission": final or ""},
            },
        ],
        "trajectory_format": FORMAT,
    }


def _with_extra(events: Sequence[LogEvent], said: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with their times, and the commands of a reply, under `extra`."""
    speaking = (
        LogEventKind.SESSION,
        LogEventKind.USER,
        LogEventKind.REPLY,
        LogEventKind.OBSERVATION,
        LogEventKind.UNDO,
    )
    times = [event.at for event in events if event.kind in speaking][-len(said) :]
    return [
        message | {"extra": {"timestamp": at} | _actions(message)}
        for message, at in zip(said, times, strict=True)
    ]


def _actions(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] != "assistant":
        return {}
    calls = [(call["id"], call["function"]) for call in message.get("tool_calls", ())]
    commands = [json.loads(made["arguments"]).get("command", made["name"]) for _, made in calls]
    ids = [call_id for call_id, _ in calls]
    return {"actions": [{"command": c, "tool_call_id": i} for c, i in zip(commands, ids, strict=True)]}
