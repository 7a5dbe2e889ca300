"""`ostinato sandbox` from a shell, each command in its own process.

Covers fleet/command_line.py and fleet/client/timed_run.py.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sandbox.conftest import served

from ostinato.fleet.command_line import picture


@pytest.mark.slow
def test_sandboxes_outlive_the_command_that_made_them(tmp_path: Path) -> None:
    repo, state = tmp_path / "repo", tmp_path / "state"
    repo.mkdir()
    (repo / "a.txt").write_text("hello\n")

    def ostinato(command: str, *words: str) -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, "-m", "ostinato", "sandbox", command, "--state", str(state), *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)

    with served("serve", state, "--cpu-limit", "2", "--memory-overcommit", "8"):
        ran = ostinato(
            "run", "--repo", str(repo), "--json", "--keep", "--save", "--label", "run=7",
            "--", "sh", "-c", "cat a.txt; echo more > b.txt; exit 3",
        )  # fmt: skip
        assert ran.returncode == 1, ran.stderr
        *output, last = ran.stdout.splitlines()
        summary = json.loads(last)
        assert output == ["hello"] and summary["exit_code"] == 3
        assert min(summary[phase] for phase in ("placed", "started", "ran", "saved")) >= 0
        name = summary["id"]
        assert f"{name}  running" in ostinato("list").stdout
        assert "cat a.txt" in ostinato("logs", name).stdout
        forked = ostinato("fork", name, "-n", "2").stdout.split()
        assert len(set(forked)) == 2
        again = ostinato("run", "--template", summary["snapshot"], "--", "cat b.txt")
        assert again.stdout == "more\n" and "started" in again.stderr
        assert ostinato("snapshot", name).returncode == 0
        assert set(ostinato("rm", "--label", "run=7").stdout.split()) == {name, *forked}
        assert ostinato("rm", summary["snapshot"]).returncode == 0
        assert json.loads(ostinato("list", "--json").stdout)["sandboxes"] == []
        missing = ostinato("logs", name)
        assert missing.returncode == 2 and "no sandbox" in missing.stderr
    stopped = ostinato("list")
    assert stopped.returncode == 2 and "ostinato sandbox serve" in stopped.stderr


@pytest.mark.parametrize("width", [1, 7, 80])
def test_the_bar_is_as_wide_as_the_screen(width: int) -> None:
    bar, legend = str(picture({"placed": 0.002, "started": 0.01, "ran": 0.4}, width)).splitlines()
    assert bar == "█" * width
    assert legend == "placed 2 ms  started 10 ms  ran 400 ms"
