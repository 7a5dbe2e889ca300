"""The hook command in this process, and events of Claude Code for it."""

import io
import json
import sys
import time

import pytest

from ostinato.edits.capture import hook_command, spool


@pytest.fixture
def hook(desk, monkeypatch):
    """Return a function that passes an event to the hook command in this process, without a reporter."""
    monkeypatch.setattr(spool, "wake", lambda repo: None)

    def tell(event):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(event).encode())))
        assert hook_command.main(["--input", "stdin"]) == 0
        desk.clock.at = time.time()

    return tell


def claude(desk, name, tool, told, **more):
    """Return a hook event of Claude Code."""
    return {
        "session_id": "5b1c",
        "prompt_id": "p1",
        "transcript_path": "/nowhere/5b1c.jsonl",
        "cwd": str(desk.root),
        "permission_mode": "default",
        "hook_event_name": name,
        "tool_name": tool,
        "tool_input": told,
        "tool_use_id": "toolu_1",
    } | more
