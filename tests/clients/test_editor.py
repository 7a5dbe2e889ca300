import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.clients.editor import DONE, SUBMIT, Change, Editor, patch_of, say

from ostinato.engine.scripted import ScriptedEngine
from ostinato.model.families import HermesRenderer, assistant_message, parse_text
from ostinato.model.tokenizer import Tokenizer
from ostinato.types import FinishReason, GenerateRequest

RENDERER = HermesRenderer(Tokenizer.train(["the line is changed"], 300))
CHANGE = Change(path="calc.py", before="    return a - b", after="    return a + b")
READ_EDIT = {"ls": ("path",), "read": ("path",), "edit": ("path", "old_string", "new_string")}


def tools(takes: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Tools and the arguments that they take."""
    return [
        {
            "type": "function",
            "function": {"name": name, "parameters": {"properties": {each: {} for each in arguments}}},
        }
        for name, arguments in takes.items()
    ]


def prompt(takes: Mapping[str, Sequence[str]], calls: int = 0, task: str = "fix it") -> str:
    """A prompt after so many tool calls were made."""
    offered = tools(takes)
    messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
    made = assistant_message(parse_text('<tool_call>\n{"name": "x", "arguments": {}}\n</tool_call>'))
    messages += [made, {"role": "tool", "content": "seen"}] * calls
    return RENDERER.tokenizer.decode(RENDERER.render(messages, offered))


def call(text: str) -> tuple[str, dict[str, Any]]:
    (made,) = parse_text(text).tool_calls
    return made.name, made.arguments


@pytest.mark.parametrize(
    ("takes", "reads", "edits"),
    [
        (
            {"Bash": ("command",), "Read": ("file_path",), "Edit": ("file_path", "old_string", "new_string")},
            {"file_path"},
            {"file_path", "old_string", "new_string"},
        ),
        (
            {"Read": ("filepath",), "Edit": ("file_path", "old_string", "new_string")},
            {"filepath"},
            {"file_path", "old_string", "new_string"},
        ),
        (
            {"read": ("filePath",), "edit": ("filePath", "oldString", "newString")},
            {"filePath"},
            {"filePath", "oldString", "newString"},
        ),
        (READ_EDIT, {"path"}, {"path", "old_string", "new_string"}),
        (
            {"read": ("path",), "bash": ("command",), "edit": ("path", "edits")},
            {"path"},
            {"path", "edits"},
        ),
        (
            {"read_file": ("file_path",), "edit": ("file_path", "old_string", "new_string")},
            {"file_path"},
            {"file_path", "old_string", "new_string"},
        ),
        (
            {"read_files": ("files",), "editor": ("path", "old_text", "new_text")},
            {"files"},
            {"path", "old_text", "new_text"},
        ),
        ({"exec_command": ("cmd",), "apply_patch": ("input",)}, {"cmd"}, {"input"}),
    ],
)
def test_it_speaks_the_tools_that_are_offered(takes, reads, edits) -> None:
    name, arguments = call(say(prompt(takes), CHANGE))
    assert name in takes and arguments.keys() == reads
    name, arguments = call(say(prompt(takes, calls=1), CHANGE))
    assert name in takes and arguments.keys() == edits
    assert say(prompt(takes, calls=2), CHANGE) == DONE


@pytest.mark.parametrize(("tool", "argument"), [("bash", "command"), ("exec_command", "cmd")])
def test_in_a_shell_it_really_edits(tool: str, argument: str, tmp_path: Path) -> None:
    awkward = Change(path="a b.txt", before="x[0] = 'a/b' * 2 . ^ $", after="y & z \\ 1/2")
    (tmp_path / "a b.txt").write_text(f"first\n{awkward.before}\n")
    for made in range(2):
        _, arguments = call(say(prompt({tool: (argument,)}, calls=made), awkward))
        subprocess.run(["sh", "-c", arguments[argument]], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "a b.txt").read_text() == f"first\n{awkward.after}\n"
    assert call(say(prompt({tool: (argument,)}, calls=2), awkward)) == (tool, {argument: SUBMIT})


def test_without_tools_it_answers_in_words_or_blocks() -> None:
    assert say(prompt({}, task="give this a title"), CHANGE) == DONE
    block = say(prompt({}, task="answer with SEARCH/REPLACE blocks"), CHANGE)
    assert f"SEARCH\n{CHANGE.before}\n=======\n{CHANGE.after}\n>>>>>>> REPLACE" in block


def test_the_patch_names_the_file_and_both_lines() -> None:
    assert patch_of(CHANGE).splitlines()[1:5] == [
        "*** Update File: calc.py",
        "@@",
        "-    return a - b",
        "+    return a + b",
    ]


async def test_it_keeps_what_it_said() -> None:
    editor = Editor(RENDERER, CHANGE)
    ids = tuple(RENDERER.render([{"role": "user", "content": "hi"}], tools(READ_EDIT)))
    asked = GenerateRequest(
        request_id="s/0", session_id="s", prompt_ids=ids, stop_ids=RENDERER.stop_ids, max_tokens=500
    )
    got = await ScriptedEngine(editor).generate(asked)
    assert got.finish is FinishReason.STOP and editor.said == {"s/0": got.ids}
    assert json.loads(RENDERER.parse(got.ids).tool_calls[0].raw) == {"path": "calc.py"}
