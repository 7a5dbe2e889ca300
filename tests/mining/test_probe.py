"""Covers mining/probe.py: the runs of a suite that does not end in time, or that ends its process."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ostinato.mining import probe

FILES = {
    "a.py": "def one():\n    return 1\n\n\ndef two():\n    return one() + 1\n",
    "test_one.py": "from a import one\n\n\ndef test_one():\n    assert one() == 1\n",
    "test_two.py": "from a import two\n\n\ndef test_two():\n    assert two() == 2\n",
    "test_endless.py": "def test_endless():\n    while True:\n        pass\n",
}
DEADLY = "import os\n\n\ndef test_first(): pass\n\n\ndef test_leaves():\n    os._exit(3)\n"


def probed(folder: Path, mode: str, files: dict[str, str], **order: Any) -> Any:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    tests = [name for name in sorted(files) if name.startswith("test_")]
    (folder / "order.json").write_text(
        json.dumps({"files": tests, "timeout_s": 3.0, "arguments": [], **order})
    )
    command = [sys.executable, str(probe.__file__), mode, "order.json", "result.json"]
    subprocess.run(command, cwd=folder, check=True, env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    return json.loads((folder / "result.json").read_text())


def test_the_files_that_end_are_surveyed_when_all_together_do_not(tmp_path: Path) -> None:
    found = probed(tmp_path, "survey", FILES)
    assert found["left_out"]["take too long"] == 1
    passed = {"test_one.py::test_one": "passed", "test_two.py::test_two": "passed"}
    assert [each["outcomes"] for each in (found["first"], *found["again"])] == [passed] * 4
    reached = {
        test: [found["first"]["functions"][index] for index in seen]
        for test, seen in found["first"]["reached"].items()
    }
    assert reached == {
        "test_one.py::test_one": [["a.py", 1], ["test_one.py", 4]],
        "test_two.py::test_two": [["a.py", 1], ["a.py", 5], ["test_two.py", 4]],
    }


def test_a_file_that_ends_the_process_costs_only_itself(tmp_path: Path) -> None:
    files = {name: FILES[name] for name in ("a.py", "test_one.py")} | {"test_deadly.py": DEADLY}
    runs = probed(tmp_path, "outcomes", files)
    assert [run["outcomes"] for run in runs] == [{"test_one.py::test_one": "passed"}] * 4


def test_a_death_has_a_place_and_a_status(tmp_path: Path) -> None:
    (run,) = probed(tmp_path, "outcomes", {"test_deadly.py": DEADLY})
    assert (run["died"], run["timeout"], run["exit"]) == (True, False, 3)
    assert run["at"] == "'test_deadly.py::test_leaves'"


def test_programs_that_tests_start_find_the_packages_of_the_repository(tmp_path: Path) -> None:
    starts = "import subprocess, sys\n\n\ndef test_starts():\n"
    starts += "    subprocess.run([sys.executable, '-m', 'tool'], check=True)\n"
    files = {"src/tool/__init__.py": "", "src/tool/__main__.py": "", "test_tool.py": starts}
    run, *_ = probed(tmp_path, "outcomes", files)
    assert run["outcomes"] == {"test_tool.py::test_starts": "passed"}
