"""Profiles: each dialect reaches the same tools, and the trained ones do not change.

Covers harness/profiles/profile.py, harness/profiles/dialects.py, harness/profiles/forms.py,
harness/profiles/offers.py, harness/profiles/prompt.py and harness/profiles/schema.py.
"""

import json

import pytest

from ostinato.harness.agent import Agent, HarnessConfig
from ostinato.harness.errors import InvalidArguments
from ostinato.harness.execute import Executor
from ostinato.harness.profiles.profile import CORE, PROFILES, Profile, ProfileError, profile
from ostinato.harness.profiles.prompt import SYSTEM
from ostinato.harness.scripted import ScriptedClient
from ostinato.harness.tools.definitions import TOOLS
from ostinato.harness.users import ScriptedUser
from ostinato.sandbox.base import Sandbox

TRAINED = "3cdad2cf996260bb"
"""The core profile's hash: when it changes, every checkpoint so far was trained under another harness."""

CALLS = {
    "claude": [
        ("Read", {"file_path": "calc.py", "limit": 2}),
        ("Edit", {"file_path": "calc.py", "old_string": "a - b", "new_string": "a + b"}),
        ("Bash", {"command": "cat calc.py", "timeout": 1500, "description": "look"}),
        ("Grep", {"pattern": "alpha", "head_limit": 3}),
        ("Glob", {"pattern": "**/*.py"}),
        ("TodoWrite", {"todos": [{"content": "add", "status": "pending", "activeForm": "adding"}]}),
        ("AskUserQuestion", {"questions": [{"question": "sure?", "options": [{"label": "yes"}]}]}),
        ("Write", {"file_path": "new.py", "content": "x = 1\n"}),
    ],
    "opencode": [
        ("edit", {"filePath": "calc.py", "oldString": "a - b", "newString": "a + b", "replaceAll": False}),
        ("list", {}),
        ("grep", {"pattern": "alpha", "include": "*.py"}),
        ("question", {"questions": [{"question": "sure?", "header": "sure"}]}),
        ("todowrite", {"todos": [{"content": "add", "status": "completed", "priority": "high", "id": "1"}]}),
    ],
    "pi": [
        ("edit", {"path": "calc.py", "oldText": "a - b", "newText": "a + b"}),
        ("find", {"pattern": "*.py", "limit": 1}),
    ],
    "codex": [
        ("shell", {"command": ["bash", "-lc", "cat calc.py | head -1"], "timeout_ms": 1}),
        ("shell", {"command": ["cat", "calc.py"]}),
        (
            "apply_patch",
            {
                "input": "*** Begin Patch\n*** Update File: calc.py\n-    return a - b\n"
                "+    return a + b\n*** End Patch"
            },
        ),
        ("update_plan", {"explanation": "so", "plan": [{"step": "add", "status": "in_progress"}]}),
    ],
    "mini": [("bash", {"command": "sed -i 's/a - b/a + b/' calc.py"})],
    "short": [
        ("ls", {"path": "."}),
        ("read", {"path": "calc.py"}),
        ("edit", {"path": "calc.py", "old_string": "a - b", "new_string": "a + b"}),
        ("bash", {"command": "cat calc.py"}),
        ("ask_user", {"question": "sure?"}),
    ],
}


def executor(sandbox: Sandbox, name: str) -> Executor:
    return Executor(sandbox, ScriptedUser(["yes"]), command_timeout_s=2.0, profile=profile(name))


def test_the_core_profile_is_what_checkpoints_were_trained_with() -> None:
    assert CORE.hash == TRAINED
    assert (CORE.system, CORE.tools) == (SYSTEM, tuple(TOOLS))
    assert HarnessConfig().profile == CORE.name


def test_no_two_profiles_share_a_hash() -> None:
    assert len({each.hash for each in PROFILES.values()}) == len(PROFILES)
    ruled = Profile(name="core", offers=CORE.offers, read_before_edit=True)
    assert ruled.hash != CORE.hash


def test_an_unknown_profile_names_the_known_ones() -> None:
    with pytest.raises(ProfileError, match="no profile 'emacs': use one of core, compact, full, claude"):
        profile("emacs")


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_sound(name: str) -> None:
    shown = [tool["function"] for tool in profile(name).tools]
    assert len({tool["name"] for tool in shown}) == len(shown)
    for tool in shown:
        assert tool["description"]
        assert set(tool["parameters"]["required"]) <= set(tool["parameters"]["properties"])
        assert json.loads(json.dumps(tool)) == tool


@pytest.mark.parametrize("name", CALLS)
async def test_a_dialect_reaches_the_same_tools(sandbox: Sandbox, name: str) -> None:
    tools = executor(sandbox, name)
    for tool, arguments in CALLS[name]:
        observation = await tools.run(tool, arguments)
        assert observation.error is None, observation
    assert b"a + b" in await sandbox.read("calc.py")


def test_forms_become_canonical() -> None:
    claude, codex = PROFILES["claude"], PROFILES["codex"]
    assert claude.reading("Bash", {"command": "ls", "timeout": 1500}).arguments == {
        "command": "ls",
        "timeout": 2,
    }
    asked = {"questions": [{"question": "q", "options": [{"label": "a"}, {"label": "b"}]}]}
    assert claude.reading("AskUserQuestion", asked).arguments == {"question": "q", "options": ["a", "b"]}
    assert codex.reading("shell", {"command": ["echo", "a b"]}).arguments == {"command": "echo 'a b'"}
    plan = {"plan": [{"step": "add", "status": "pending"}]}
    todos = {"todos": [{"content": "add", "status": "pending"}]}
    assert codex.reading("update_plan", plan).arguments == todos


@pytest.mark.parametrize(
    ("name", "tool", "arguments", "message"),
    [
        ("claude", "read", {}, "unknown tool read, use Read Write Edit Bash Grep Glob TodoWrite AskUserQ"),
        ("claude", "Read", {"path": "calc.py"}, "Read needs file_path"),
        ("pi", "edit", {"path": "a", "oldText": "a", "newText": 3}, "edit: newText must be string"),
        ("codex", "shell", {"command": "ls"}, "shell: command must be array"),
        ("codex", "shell", {"command": []}, "command is empty"),
        ("claude", "AskUserQuestion", {"questions": []}, "ask one question at a time"),
        ("full", "todo_write", {"todos": [3]}, "todo_write: todos must be a list of objects"),
        ("full", "todo_write", {"todos": [{"content": "a"}]}, r"todo_write: todos\[0\] needs status"),
        (
            "full",
            "todo_write",
            {"todos": [{"content": "a", "status": "done"}]},
            r"todo_write: todos\[0\]: status must be one of pending, in_progress, completed",
        ),
    ],
)
async def test_a_wrong_call_is_named_in_its_dialect(sandbox: Sandbox, name, tool, arguments, message) -> None:
    observation = await executor(sandbox, name).run(tool, arguments)
    assert isinstance(observation.error, InvalidArguments)
    with pytest.raises(InvalidArguments, match=f"^{message}"):
        raise observation.error


async def test_errors_speak_the_dialect(sandbox: Sandbox) -> None:
    edit = {"path": "calc.py", "oldText": "return a * b", "newText": ""}
    observation = await executor(sandbox, "pi").run("edit", edit)
    assert observation.text.startswith("error: oldText not found; nearest:\n    return a - b")


async def test_the_agent_asks_and_reports_in_the_right_words(sandbox: Sandbox) -> None:
    from tests.harness.test_agent import calls, says

    client = ScriptedClient([calls(*CALLS["claude"][:2]), says("done")])
    agent = Agent(client, sandbox, ScriptedUser([]), HarnessConfig(profile="claude"))
    outcome = await agent.run("calc.py is off", session_id="s1")
    assert outcome.calls == ("read", "edit")
    assert client.asked[0].tools == PROFILES["claude"].tools
    assert client.asked[0].headers()["X-Harness-Hash"] == PROFILES["claude"].hash
