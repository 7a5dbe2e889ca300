import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ostinato.engine.editor import DONE, SUBMIT, Change, Editor, patch_of, say
from ostinato.engine.scripted import ScriptedEngine
from ostinato.model.renderer import Renderer, assistant_message, parse_text
from ostinato.model.tokenizer import Tokenizer
from ostinato.types import FinishReason, GenerateRequest

RENDERER = Renderer(Tokenizer.train(["the line is changed"], 300))
CHANGE = Change(path="calc.py", before="    return a - b", after="    return a + b")
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("ls", "read", "edit")]


def prompt(*names: str, calls: int = 0, task: str = "fix it") -> str:
    """A prompt after so many tool calls were made."""
    offered = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in names]
    messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
    made = assistant_message(parse_text('<tool_call>\n{"name": "x", "arguments": {}}\n</tool_call>'))
    messages += [made, {"role": "tool", "content": "seen"}] * calls
    return RENDERER.tokenizer.decode(RENDERER.render(messages, offered))


def call(text: str) -> tuple[str, dict[str, Any]]:
    (made,) = parse_text(text).tool_calls
    return made.name, made.arguments


@pytest.mark.parametrize(
    ("names", "reads", "edits"),
    [
        (("Bash", "Read", "Edit"), {"file_path"}, {"file_path", "old_string", "new_string"}),
        (("read", "edit", "todowrite"), {"filePath"}, {"filePath", "oldString", "newString"}),
        (("ls", "read", "edit"), {"path"}, {"path", "old_string", "new_string"}),
        (("exec_command", "apply_patch"), {"cmd"}, {"input"}),
    ],
)
def test_it_speaks_the_tools_that_are_offered(names, reads, edits) -> None:
    name, arguments = call(say(prompt(*names), CHANGE))
    assert name in names and arguments.keys() == reads
    name, arguments = call(say(prompt(*names, calls=1), CHANGE))
    assert name in names and arguments.keys() == edits
    assert say(prompt(*names, calls=2), CHANGE) == DONE


@pytest.mark.parametrize(("tool", "argument"), [("bash", "command"), ("exec_command", "cmd")])
def test_in_a_shell_it_really_edits(tool: str, argument: str, tmp_path: Path) -> None:
    awkward = Change(path="a b.txt", before="x[0] = 'a/b' * 2 . ^ $", after="y & z \\ 1/2")
    (tmp_path / "a b.txt").write_text(f"first\n{awkward.before}\n")
    for made in range(2):
        _, arguments = call(say(prompt(tool, calls=made), awkward))
        subprocess.run(["sh", "-c", arguments[argument]], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "a b.txt").read_text() == f"first\n{awkward.after}\n"
    assert call(say(prompt(tool, calls=2), awkward)) == (tool, {argument: SUBMIT})


def test_without_tools_it_answers_in_words_or_blocks() -> None:
    assert say(prompt(task="give this a title"), CHANGE) == DONE
    block = say(prompt(task="answer with SEARCH/REPLACE blocks"), CHANGE)
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
    ids = tuple(RENDERER.render([{"role": "user", "content": "hi"}], TOOLS))
    asked = GenerateRequest(
        request_id="s/0", session_id="s", prompt_ids=ids, stop_ids=RENDERER.stop_ids, max_tokens=500
    )
    got = await ScriptedEngine(editor).generate(asked)
    assert got.finish is FinishReason.STOP and editor.said == {"s/0": got.ids}
    assert json.loads(RENDERER.parse(got.ids).tool_calls[0].raw) == {"path": "calc.py"}
