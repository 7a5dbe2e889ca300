import json
import subprocess
from pathlib import Path

import pytest

from ostinato.edits.install.claude import EVENTS, LOCAL, SHARED, has_claude, install_claude, uninstall_claude
from ostinato.edits.install.git_hooks import InstallError

THEIRS = {
    "permissions": {"allow": ["Bash(npm run test:*)"]},
    "hooks": {
        "PostToolUse": [{"matcher": "Edit", "hooks": [{"type": "command", "command": "prettier --write"}]}],
        "Notification": [{"hooks": [{"type": "command", "command": "say hello"}]}],
    },
    "ünicode": "stays",
}


def read(root: Path, name: Path):
    return json.loads((root / name).read_text())


def theirs(root: Path, name: Path = LOCAL) -> Path:
    (root / ".claude").mkdir()
    (root / name).write_text(json.dumps(THEIRS, indent=2, ensure_ascii=False) + "\n")
    return root / name


def test_entries_are_added_once_beside_theirs_and_taken_out_again(tmp_path) -> None:
    path = theirs(tmp_path)
    before = path.read_text()
    install_claude(tmp_path, shared=False)
    install_claude(tmp_path, shared=False)
    settings = read(tmp_path, LOCAL)
    assert settings["permissions"] == THEIRS["permissions"]
    assert settings["hooks"]["PostToolUse"][0] == THEIRS["hooks"]["PostToolUse"][0]
    assert [len(settings["hooks"][name]) for name in EVENTS] == [1, 1, 1, 2, 1, 1, 1]
    assert settings["hooks"]["PreToolUse"][0]["matcher"] == "Edit|Write|MultiEdit|NotebookEdit|Bash"
    assert has_claude(tmp_path) == [str(LOCAL)]
    uninstall_claude(tmp_path)
    assert path.read_text() == before
    assert uninstall_claude(tmp_path) == [] and has_claude(tmp_path) == []


def test_a_shared_entry_does_no_harm_where_we_are_not_installed(tmp_path) -> None:
    install_claude(tmp_path, shared=True)
    command = read(tmp_path, SHARED)["hooks"]["Stop"][0]["hooks"][0]["command"]
    done = subprocess.run(["/bin/sh", "-c", command], env={"PATH": "/bin"}, input=b"{}", check=False)
    assert done.returncode == 0
    uninstall_claude(tmp_path)
    assert read(tmp_path, SHARED) == {}


def test_the_entry_runs(desk) -> None:
    install_claude(desk.root, shared=False)
    command = read(desk.root, LOCAL)["hooks"]["Stop"][0]["hooks"][0]["command"]
    event = json.dumps({"hook_event_name": "Nothing", "session_id": "s", "cwd": str(desk.root)})
    done = subprocess.run(["/bin/sh", "-c", command], input=event.encode(), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": []}', '{"hooks": {"Stop": {}}}'])
def test_a_file_that_is_not_right_is_not_touched(tmp_path, text) -> None:
    theirs(tmp_path).write_text(text)
    with pytest.raises(InstallError, match=r"settings\.local\.json .*not touched"):
        install_claude(tmp_path, shared=False)
    assert (tmp_path / LOCAL).read_text() == text


def test_groups_of_a_kind_we_do_not_know_stay(tmp_path) -> None:
    odd = {"hooks": {"Stop": ["odd", {"hooks": "odd"}, {"hooks": []}]}}
    theirs(tmp_path).write_text(json.dumps(odd))
    install_claude(tmp_path, shared=False)
    assert read(tmp_path, LOCAL)["hooks"]["Stop"][:3] == odd["hooks"]["Stop"]
