"""Folds of a session's log against what reads them: the formats' own models and rules.

Covers harness/export/atif.py, harness/export/openai.py, harness/export/mini.py and
harness/export/agent_trace.py.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from atif import Trajectory

from ostinato.harness.agent import Agent
from ostinato.harness.client import Reply
from ostinato.harness.export import FORMATS
from ostinato.harness.permissions.policy import DEFAULT
from ostinato.harness.permissions.rules import Permissions
from ostinato.harness.scripted import ScriptedClient
from ostinato.harness.session_log import LogEvent, SessionLog
from ostinato.harness.users import Grant, ScriptedUser
from ostinato.harness.workspace.checkpoints import Checkpoints
from ostinato.harness.workspace.undo import undo
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.base import Spec


def reply(content: str | None, *calls: tuple[str, dict[str, object]], broken: str | None = None) -> Reply:
    message: dict[str, object] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"c{i}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for i, (name, arguments) in enumerate(calls)
        ]
    finish = "tool_calls" if calls else "stop"
    return Reply(message=message, finish=finish, tokens=20, broken=broken, version=7, arm="main")


@pytest.fixture
async def events(repo: Path, tmp_path: Path) -> Sequence[LogEvent]:
    """A session with everything in it: a broken reply, a question, edits, a grant, an undo."""
    edit = ("edit", {"path": "calc.py", "old_string": "a - b", "new_string": "a + b"})
    client = ScriptedClient(
        [
            reply("<tool_call>\n{oops", broken="bad JSON"),
            reply("I look.", ("read", {"path": "calc.py"}), ("bash", {"command": "touch made"})),
            reply(None, edit),
            reply("fixed"),
            reply("you are welcome"),
        ]
    )
    backend = ProcessBackend(in_place=True)
    agent = Agent(
        client,
        await backend.create(Spec(repo=repo)),
        ScriptedUser([], [Grant.ALWAYS]),
        permissions=Permissions(DEFAULT),
        keeper=(checkpoints := await Checkpoints.open(repo, tmp_path / "state")),
    )
    with SessionLog(tmp_path / "s1.jsonl") as log:
        conversation = agent.converse("s1", log=log)
        await agent.prompt(conversation, "calc.py is off")
        await undo(checkpoints, conversation)
        await agent.end(conversation, await agent.prompt(conversation, "thanks"))
        return log.events


def test_a_name_of_any_bytes_can_be_exported(events: Sequence[LogEvent]) -> None:
    odd = [
        replace(event, data={**event.data, "path": "\udce9\n"}) if "path" in event.data else event
        for event in events
    ]
    assert all(form(odd).encode() for form in FORMATS.values())
    trace = [json.loads(line) for line in FORMATS["agent-trace"](odd).split("\n")]
    assert {file["path"] for record in trace for file in record["files"]} == {"\\xe9\\x0a"}
    assert json.loads(FORMATS["atif"](odd))


def test_atif_as_its_own_model_reads_it(events: Sequence[LogEvent]) -> None:
    value = json.loads(FORMATS["atif"](events))
    found = Trajectory.model_validate(value)
    assert found.schema_version == "ATIF-v1.8"
    assert [step.source for step in found.steps] == [
        "system",
        "user",
        *["agent"] * 4,
        "user",
        "user",
        "agent",
    ]
    looked = found.steps[3]
    assert looked.tool_calls is not None and looked.observation is not None
    assert [call.function_name for call in looked.tool_calls] == ["read", "bash"]
    assert [result.source_call_id for result in looked.observation.results] == ["c0", "c1"]
    assert looked.extra is not None and looked.extra["version"] == 7
    assert {note["kind"] for note in looked.extra["events"]} == {"checkpoint", "edit", "answered"}
    Trajectory.model_validate(value | {"schema_version": "ATIF-v1.7"})


def test_openai_messages_are_what_the_model_read(events: Sequence[LogEvent]) -> None:
    (row,) = [json.loads(line) for line in FORMATS["openai"](events).splitlines()]
    roles = [message["role"] for message in row["messages"]]
    assert roles[:4] == ["system", "user", "assistant", "user"]
    assert row["messages"][3]["content"] == "error: bad JSON"
    assert row["messages"][-3]["content"] == "[I took your changes back: calc.py, made]"
    assert {tool["function"]["name"] for tool in row["tools"]} >= {"read", "edit"}
    answered = [message["tool_call_id"] for message in row["messages"] if message["role"] == "tool"]
    asked = [call["id"] for message in row["messages"] for call in message.get("tool_calls", ())]
    assert answered == asked


def test_mini_swe_agent_trajectory(events: Sequence[LogEvent]) -> None:
    value = json.loads(FORMATS["mini"](events))
    assert value["trajectory_format"] == "mini-swe-agent-1.1"
    assert set(value["info"]) >= {"model_stats", "config", "mini_version", "exit_status", "submission"}
    assert value["info"]["exit_status"] == "Submitted"
    assert value["info"]["model_stats"]["api_calls"] == 5
    assert value["messages"][-1]["role"] == "exit"
    commands = [
        action["command"]
        for message in value["messages"]
        for action in message["extra"].get("actions", ())
        if "timestamp" in message["extra"]
    ]
    assert commands == ["read", "touch made", "edit"]


def test_agent_trace_names_the_lines_that_were_written(events: Sequence[LogEvent], repo: Path) -> None:
    records = [json.loads(line) for line in FORMATS["agent-trace"](events).splitlines()]
    (record,) = records  # an empty file has no line
    assert (record["version"], record["tool"]["name"]) == ("0.1.0", "ostinato-code")
    (file,) = record["files"]
    (conversation,) = file["conversations"]
    assert file["path"] == "calc.py"
    assert conversation["contributor"] == {"type": "ai", "model_id": "ostinato/7"}
    (lines,) = conversation["ranges"]
    assert (lines["start_line"], lines["end_line"]) == (2, 2)
    assert lines["content_hash"].startswith("sha256:")
    assert FORMATS["agent-trace"](events) == FORMATS["agent-trace"](events)


def test_every_cut_of_a_log_can_be_exported(events: Sequence[LogEvent]) -> None:
    for end in range(1, len(events) + 1):
        for name, fold in FORMATS.items():
            assert fold(events[:end]) or name == "agent-trace"
        Trajectory.model_validate(json.loads(FORMATS["atif"](events[:end])))
