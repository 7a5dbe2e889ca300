"""Covers tasks/mining/probe.py: the survey of a suite that does not end in time."""

import json
import subprocess
import sys
from pathlib import Path

from ostinato.tasks.mining import probe

FILES = {
    "a.py": "def one():\n    return 1\n\n\ndef two():\n    return one() + 1\n",
    "test_one.py": "from a import one\n\n\ndef test_one():\n    assert one() == 1\n",
    "test_two.py": "from a import two\n\n\ndef test_two():\n    assert two() == 2\n",
    "test_endless.py": "def test_endless():\n    while True:\n        pass\n",
}


def test_the_files_that_end_are_surveyed_when_all_together_do_not(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    order = {"files": sorted(set(FILES) - {"a.py"}), "timeout_s": 3.0, "arguments": []}
    (tmp_path / "order.json").write_text(json.dumps(order))
    command = [sys.executable, str(probe.__file__), "survey", "order.json", "result.json"]
    subprocess.run(command, cwd=tmp_path, check=True, env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    found = json.loads((tmp_path / "result.json").read_text())
    assert found["left_out"] == 1
    passed = {"test_one.py::test_one": "passed", "test_two.py::test_two": "passed"}
    assert found["first"]["outcomes"] == found["second"]["outcomes"] == passed
    reached = {
        test: [found["first"]["functions"][index] for index in seen]
        for test, seen in found["first"]["reached"].items()
    }
    assert reached == {
        "test_one.py::test_one": [["a.py", 1], ["test_one.py", 4]],
        "test_two.py::test_two": [["a.py", 1], ["a.py", 5], ["test_two.py", 4]],
    }
