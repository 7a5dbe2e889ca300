"""Edits reach the journal of a repository that wants them: by the contract, and with the real hooks."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.harness.test_agent import Watching

from ostinato.harness.conversation import Call, Edit
from ostinato.harness.profiles.offers import Reading
from ostinato.harness.session_log import Sessions
from ostinato.harness.users import SilentUser
from ostinato.harness.workspace.edit_journal import EditJournal
from ostinato.harness.workspace.workbench import Options, Workbench

CALL = Call(id="c0", name="edit", arguments={}, meant=Reading(tool="edit", arguments={}))
WRITING = "import sys; open('told', 'a').write(sys.stdin.read() + chr(10))"


async def test_an_edit_is_told_where_it_is_wanted(repo: Path) -> None:
    journal = EditJournal(repo, repo / ".git", [sys.executable, "-c", WRITING])
    edits = [Edit(path="calc.py", before=b"a\n", after=after) for after in (b"b\n", None, b"\xff")]
    journal.tell("s1", 2, "ostinato-7", CALL, edits[0])
    await journal.drain()
    assert not (repo / "told").exists()
    (repo / ".git/ostinato").mkdir()
    (repo / ".git/ostinato/enabled").touch()
    for edit in edits:
        journal.tell("s1", 2, "ostinato-7", CALL, edit)
    await journal.drain()
    told = [json.loads(line) for line in (repo / "told").read_text().splitlines()]
    assert told[0] == {
        "hook_event_name": "edit.proposed",
        "session_id": "s1",
        "cwd": str(repo),
        "path": "calc.py",
        "before": "a\n",
        "after": "b\n",
        "turn": 2,
        "tool_use_id": "c0",
        "tool_name": "edit",
        "agent": "ostinato-code",
        "model": "ostinato-7",
    }
    assert [event["after"] for event in told] == ["b\n", None]


@pytest.mark.slow
async def test_the_real_hooks_hear_of_it(repo: Path, gateway: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ostinato.cli", "hooks", "install"]
    await asyncio.to_thread(subprocess.run, command, cwd=repo, check=True, capture_output=True)
    sessions = Sessions(directory=tmp_path / "state" / "sessions")
    options = Options(directory=repo, url=gateway, key="key", sessions=sessions)
    bench = await Workbench.open(options, SilentUser(), Watching())
    await bench.prompt("calc.py is off")
    await bench.close()
    found = [
        path.read_text(errors="replace") for path in (repo / ".git/ostinato").rglob("*") if path.is_file()
    ]
    assert any(bench.conversation.session_id in text and "calc.py" in text for text in found)
