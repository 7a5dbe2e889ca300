"""From repositories to tasks that tell before from after, with small archives and a small history.

Covers mining/mine.py, mining/present.py, mining/past.py, mining/trials.py,
mining/commands.py, mining/probe.py and mining/history.py.
"""

import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from ostinato.cli import main
from ostinato.mining.base import MiningError
from ostinato.mining.history import History, cleaned
from ostinato.mining.mine import Miner, MiningConfig
from ostinato.mining.past import mine_commit
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.tasks.base import load_task

CALC = '''\
def clamp(value, low=0, high=10):
    """Return the value, or the bound that it is beyond."""
    if value < low:
        return low
    if value > high:
        return high
    return value


def mean(values):
    """Return the mean; 0 of nothing."""
    if not values:
        return 0
    total = sum(values)
    return total / len(values)
'''
TESTS = """\
from calc import clamp, mean


def test_inside():
    assert clamp(5) == 5


def test_low():
    assert clamp(-1) == 0 and clamp(0) == 0


def test_high():
    assert clamp(11) == 10 and clamp(3, 1, 2) == 2


def test_mean():
    assert mean([1, 2, 6]) == 3


def test_mean_of_nothing():
    assert mean([]) == 0
"""
LICENCE = "Permission is hereby granted, free of charge, to any person"


def archive(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as opened:
        for name, text in files.items():
            info = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{name}")
            info.size = len(text.encode())
            opened.addfile(info, io.BytesIO(text.encode()))
    return path


def test_three_archives_give_tasks_or_a_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = archive(tmp_path / "calc-1.0.tar.gz", {"calc.py": CALC, "test_calc.py": TESTS, "LICENSE": LICENCE})
    offline = archive(
        tmp_path / "web-1.0.tar.gz",
        {"web.py": CALC, "test_web.py": "def test_a():\n    raise ConnectionError('no name resolution')\n"},
    )
    untested = archive(tmp_path / "bare-1.0.tar.gz", {"bare.py": CALC})
    arguments = ["tasks", "mine", str(good), str(offline), str(untested), "--out", str(tmp_path / "out")]
    arguments += ["--per-repository", "3", "--sandbox", "process", "--json"]
    assert main(arguments) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert len(report["tasks"]) == report["stages"]["tasks"] == 3
    assert report["refused"] == {"needs a network": 1, "no tests": 1}
    assert any("web: needs a network" in reason for reason in report["reasons"])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(report["tasks"])
    details = set()
    for path in (tmp_path / "out").iterdir():
        task, evidence = load_task(path), json.loads((path / "evidence.json").read_text())
        assert task.kind == "mined" and task.metadata["cluster"] == "calc"
        assert evidence["licence"] == "MIT" and evidence["validation"]["grade"] == "guarded"
        assert evidence["validation"]["undecided"] == []  # a judge could decide each of these tests
        assert set(evidence["validation"]["empty"].values()) & {"failed", "error", "missing"}
        assert (task.repo / "calc.py").read_text() != CALC and (
            task.tests / "suite" / "test_calc.py"
        ).is_file()
        gone = [name.split("::")[1] for name in evidence["hidden_tests"]]
        assert gone and not any(f"def {name}(" in (task.repo / "test_calc.py").read_text() for name in gone)
        details.add(evidence["detail"])
        assert evidence["detail"] not in {"symptom", "terse"} or evidence["visible_failing_tests"], (
            "a bare name is a guess"
        )
    assert len(details) > 1


def git(repo: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *arguments], cwd=repo, check=True, capture_output=True)


def commit(repo: Path, message: str, files: dict[str, str]) -> None:
    for name, text in files.items():
        (repo / name).write_text(text)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", message)


MORE = "\n\ndef median(values):\n    return sorted(values)[len(values) // 2]\n"
MEDIAN_TEST = "\n\ndef test_median():\n    from calc import median\n\n    assert median([3, 1, 2]) == 2\n"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository whose history has one usable commit among others."""
    repo = tmp_path / "calc"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    commit(repo, "start", {"calc.py": CALC, "test_calc.py": TESTS})
    commit(repo, "docs only", {"README": "calc\n"})
    commit(
        repo,
        "feat: add a median of values (#12)\n\nSigned-off-by: a <a@b>",
        {"calc.py": CALC + MORE, "test_calc.py": TESTS + MEDIAN_TEST, "pytest.ini": "[pytest]\n"},
    )
    told = "call it: return sorted(values)[(len(values) - 1) // 2] instead"
    lower = MORE.replace("len(values) // 2", "(len(values) - 1) // 2")
    commit(repo, told, {"calc.py": CALC + lower, "test_calc.py": TESTS + MEDIAN_TEST + "\n"})
    (repo / "blob").write_bytes(b"\0\xff")
    commit(repo, "a binary file goes along", {"calc.py": CALC + MORE, "test_calc.py": TESTS})
    git(repo, "checkout", "-qb", "side", "HEAD~1")
    commit(repo, "on the side", {"other": "x"})
    git(repo, "checkout", "-q", "main")
    git(repo, "merge", "-q", "--no-ff", "-m", "merge side", "side")
    return repo


async def test_a_commit_is_to_be_done_again_and_every_other_is_named(repo: Path, tmp_path: Path) -> None:
    (repo / ".git" / "hooks" / "post-checkout").write_text("#!/bin/sh\ntouch ../ran\n")
    backend = ProcessBackend()
    config = MiningConfig(per_repository=1, detail="plain", name="my-calc")
    miner = Miner(backend, tmp_path / "out", config)
    tasks = await miner.mine([repo])
    await backend.aclose()
    (task,) = [task for task in tasks if "-history-" in task.id]
    assert task.instruction == "add a median of values"
    assert task.metadata["cluster"] == "my-calc"
    assert "test_calc.py::test_median" in task.test_ids and len(task.test_ids) == 6
    assert (task.repo / "pytest.ini").exists()  # settings of the tests are given, since they are protected
    assert "median" not in (task.repo / "calc.py").read_text() + (task.repo / "test_calc.py").read_text()
    assert miner.tally.refused == {
        "merge": 1,
        "binary change": 1,
        "message gives the answer away": 1,
    }
    assert not (tmp_path / "ran").exists()


async def test_a_commit_that_renames_a_module_is_to_be_done_again(repo: Path, tmp_path: Path) -> None:
    git(repo, "mv", "calc.py", "sums.py")
    git(repo, "mv", "test_calc.py", "test_sums.py")
    commit(
        repo, "the module is called after its sums", {"test_sums.py": "import sums\n\n\ndef test_a(): pass\n"}
    )
    (tmp_path / "clone").mkdir()
    history, backend = History(repo, tmp_path / "clone", "calc"), ProcessBackend()
    draft = await mine_commit(backend, history.commit(history.commits(1)[0]), detail="plain")
    task = await Miner(backend, tmp_path / "out", MiningConfig()).validated(draft)
    await backend.aclose()
    assert task is not None and task.test_ids == ("test_sums.py::test_a",)
    assert draft.solution["calc.py"] is None
    assert (task.repo / "calc.py").exists() and not (task.repo / "test_calc.py").exists()


def test_commits_that_no_task_can_be_made_of_are_named(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "clone").mkdir()
    history = History(repo, tmp_path / "clone", "calc")
    *_, docs, first = history.commits(99)
    for id, kind in ((first, "first commit"), (docs, "changes no sources and tests")):
        with pytest.raises(MiningError) as refused:
            history.commit(id)
        assert refused.value.kind == kind
    (tmp_path / "other").mkdir()
    with pytest.raises(MiningError, match="unreadable repository"):
        History(tmp_path / "none", tmp_path / "other", "calc")


def test_a_message_is_cleaned_of_what_is_no_request() -> None:
    message = "fix(core): wrong sign, fixes #31\n\nSee https://a.b/c\n\nCo-authored-by: b <b@c>\n"
    assert cleaned(message) == "wrong sign,\n\nSee"
