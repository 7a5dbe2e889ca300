"""One repository with much that is odd: what can be used is used, and what is left out is counted.

Covers mining/mine.py, mining/settings.py, mining/trials.py, mining/probe.py and mining/write.py.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ostinato.mining.base import SourceTree, Tally
from ostinato.mining.mine import Miner, MiningConfig
from ostinato.mining.options import pytest_arguments, pytest_options
from ostinato.mining.settings import files_of_tests, with_source_path
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.base import Sandbox, Spec
from ostinato.types import Task

SETTINGS = b"""[tool.pytest.ini_options]
addopts = "-p suite.plugin -p xdist --cov=calc --cov-report term -n auto --reruns 3 -ra"
testpaths = ["checks", "more"]
python_files = "check_*.py"
required_plugins = "pytest-cov"
filterwarnings = ["error"]
"""
CALC = b'''# coding: latin-1\r
# caf\xe9\r
def clamp(value, low=0, high=10):\r
    """Return the value, or the bound that it is beyond."""\r
    if value < low:\r
        return low\r
    return high if value > high else value\r
'''
CHECK = """from calc import clamp


def test_{0}(three):
    assert clamp({0}) == {0} and clamp(-1) == 0 and three == 3
"""
SEED = "def test_seed():\n    assert ''.join({'a', 'b', 'c', 'd', 'e'}) == ORDER\n\n\nORDER = "
CLOCK = "import time\n\n\ndef test_zone():\n    assert time.localtime(0).tm_hour == 0\n"
LEFT = "STATE = []\n\n\ndef test_first():\n    STATE.append(1)\n\n\ndef test_second():\n    assert STATE\n"
PLUGIN = b"import pytest\n\n\n@pytest.fixture\ndef three():\n    return 3\n"


def order_of_the_default_seed() -> str:
    program = "print(repr(''.join({'a', 'b', 'c', 'd', 'e'})))"
    environment = {"PYTHONHASHSEED": "0"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    return done.stdout.decode()


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("odd") / "odd"
    files = {
        "pyproject.toml": SETTINGS,
        "calc.py": CALC,
        "broken.py": b"def f(:\n",
        "undeclared.py": b"x = '\xe9'\n",
        "suite/__init__.py": b"",
        "suite/plugin.py": PLUGIN,
        "checks/check_same.py": CHECK.format(3).encode(),
        "more/check_same.py": CHECK.format(4).encode(),
        "checks/check_seed.py": (SEED + order_of_the_default_seed()).encode(),
        "checks/check_zone.py": CLOCK.encode(),
        "checks/check_left.py": LEFT.encode(),
        "checks/raises/conftest.py": b"raise ValueError('not here')\n",
        "checks/raises/check_never.py": b"def test_never(): pass\n",
        "elsewhere/check_template.py": b"import nowhere\n",
        "test_not_named_so.py": b"def test_a(): pass\n",
    }
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    os.symlink("nowhere", root / "link")
    return root


@pytest.fixture(scope="module")
def mined(odd: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Task], Tally]:
    async def mine() -> tuple[list[Task], Tally]:
        backend = ProcessBackend()
        miner = Miner(backend, tmp_path_factory.mktemp("mined"), MiningConfig(per_repository=1))
        tasks = await miner.mine([odd])
        await backend.aclose()
        return tasks, miner.tally

    return asyncio.run(mine())


def test_what_is_left_out_is_counted_with_its_reason(mined: tuple[list[Task], Tally]) -> None:
    tasks, tally = mined
    assert len(tasks) == 1 and not tally.refused, (tally.stages, tally.reasons)
    wanted = {
        "tests that pass": 3,
        "tests that are unstable": 3,
        "tests that rest on their order, or are flaky": 1,
        "tests that rest on the hash seed or the time zone": 2,
        "files left out: a link": 1,
        "files of tests that are not collected": 1,
        "files of tests outside of testpaths": 1,
        "sources left out: no Python of this version": 1,
        "sources left out: not in the encoding that they declare": 1,
        "options of pytest left out: -p xdist": 1,
        "options of pytest left out: --cov": 1,
        "options of pytest left out: --cov-report": 1,
        "options of pytest left out: -n": 1,
        "options of pytest left out: --reruns": 1,
    }
    assert {name: tally.stages[name] for name in wanted} == wanted


def test_what_a_task_ships_agrees_with_the_exam_under_any_seed(
    mined: tuple[list[Task], Tally], tmp_path: Path
) -> None:
    [task], _ = mined
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for number, is_solved in enumerate((False, True, True)):
        repo, logs = tmp_path / f"repo{number}", tmp_path / f"logs{number}"
        shutil.copytree(task.repo, repo)
        environment = {"PATH": path, "REPO": str(repo), "LOGS": str(logs)}
        environment |= {"PYTHONHASHSEED": "random", "TZ": "Asia/Tokyo", "PYTEST_ADDOPTS": "--collect-only"}
        if is_solved:
            solve = str(task.directory / "solution" / "solve.sh")
            subprocess.run(["sh", solve], env=environment, check=True, capture_output=True)
            assert (repo / "calc.py").read_bytes() == CALC
        if number == 2:
            (repo / "calc.py").write_text("import pytest\npytest.skip('no', allow_module_level=True)\n")
        script = str(task.directory / "tests" / "test.sh")
        subprocess.run(["sh", script], env=environment, check=False, capture_output=True)
        assert (logs / "reward.txt").read_text().strip() == str(int(number == 1))


async def test_a_repository_that_rests_on_the_seed_alone_is_refused_with_that_reason(tmp_path: Path) -> None:
    (tmp_path / "seed").mkdir()
    (tmp_path / "seed" / "calc.py").write_text("def one():\n    return 1\n")
    (tmp_path / "seed" / "test_seed.py").write_text(SEED + order_of_the_default_seed())
    backend = ProcessBackend()
    miner = Miner(backend, tmp_path / "out", MiningConfig())
    assert not await miner.mine([tmp_path / "seed"])
    await backend.aclose()
    assert miner.tally.refused == {"rests on order, hash seed or time zone": 1}
    assert "1 tests pass in some runs alone, as 'test_seed.py::test_seed'" in miner.tally.reasons[0]


@pytest.mark.parametrize(
    ("files", "commit", "refused"),
    [
        (
            {
                f"packages/{p}/{where}": text
                for p in "ab"
                for where, text in (
                    (f"src/{p}/calc.py", "def one():\n    return 1\n"),
                    (
                        "tests/test_calc.py",
                        f"from {p}.calc import one\n\n\ndef test_one():\n    assert one() == 1\n",
                    ),
                )
            },
            True,
            {"missing dependency": 1},
        ),
        ({"calc.py": "x = 1\n"}, False, {"no commits": 1}),
    ],
    ids=["a workspace whose packages are not installed", "a repository without a commit"],
)
async def test_what_cannot_be_surveyed_is_refused_for_its_own_reason(
    tmp_path: Path, files: dict[str, str], commit: bool, refused: dict[str, int]
) -> None:
    root = tmp_path / "repo"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    who = ["git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run([*who, "init", "-q"], check=True)
    if commit:
        subprocess.run([*who, "add", "-A"], check=True)
        subprocess.run([*who, "commit", "-qm", "start"], check=True)
    backend = ProcessBackend()
    miner = Miner(backend, tmp_path / "out", MiningConfig(commits=0))
    assert not await miner.mine([root])
    await backend.aclose()
    assert miner.tally.refused == refused, miner.tally.reasons


class ForgetfulBackend(ProcessBackend):
    """A backend that fails for the first sandbox, in a way that nobody foresaw."""

    failed = False

    async def create(self, spec: Spec) -> Sandbox:
        if not self.failed:
            self.failed = True
            raise RuntimeError("who could know")
        return await super().create(spec)


async def test_a_failure_that_nobody_foresaw_costs_one_repository(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "calc.py").write_text("def one():\n    return 1\n")
        (tmp_path / name / "test_calc.py").write_text("def test_a():\n    raise ConnectionError('refused')\n")
    backend = ForgetfulBackend()
    miner = Miner(backend, tmp_path / "out", MiningConfig(at_once=1))
    assert not await miner.mine([tmp_path / "first", tmp_path / "second"])
    await backend.aclose()
    assert miner.tally.refused == {"not expected": 1, "needs a network": 1}
    assert "first: not expected: RuntimeError: who could know (test_odd" in miner.tally.reasons[0]


@pytest.mark.parametrize(
    ("files", "kept", "left_out"),
    [
        ({"pytest.ini": "[pytest]\naddopts = --import-mode importlib -x"}, "--import-mode=importlib", ""),
        (
            {"tox.ini": "[pytest]\naddopts =\n  --cov\n  -W error::UserWarning"},
            "-W error::UserWarning -W {}",
            "--cov",
        ),
        ({"setup.cfg": "[tool:pytest]\naddopts = -pno:logging --ds=a.b"}, "-p no:logging", "--ds"),
        ({"pyproject.toml": "[tool.pytest]\naddopts = ['-m', 'not slow', '-n4']"}, "-m|not slow", "-n"),
        ({"pytest.toml": "[pytest]\naddopts = ['--deselect=a.py::b']"}, "--deselect=a.py::b", ""),
        ({".pytest.ini": "[pytest]\naddopts = -k 'not a and b'"}, "-k|not a and b", ""),
        ({"pytest.ini": "", "tox.ini": "[pytest]\naddopts = -k x"}, "", ""),
        (
            {"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-p no:xdist --strict'"},
            "-p no:xdist",
            "",
        ),
        (
            {"pytest.ini": "[pytest]\naddopts = --asyncio-mode=auto"},
            "-p pytest_asyncio.plugin --asyncio-mode=auto",
            "",
        ),
        ({"pytest.ini": "[pytest]\nstrict_config = true"}, "-o strict_config=false", ""),
        ({"pytest.ini": "[pytest]\nrequired_plugins = a b"}, "-o required_plugins=", ""),
        ({"pytest.ini": "[pytest]\naddopts = -p a.b", "src/a/b.py": ""}, "-p a.b", ""),
        ({"pytest.ini": "[pytest]\naddopts = -p a.b"}, "", "-p a.b"),
        ({"a/test_x.py": "", "b/test_x.py": ""}, "--import-mode=importlib", ""),
        ({"a/test_x.py": "", "b/test_x.py": "", "a/__init__.py": ""}, "", ""),
        ({"pyproject.toml": "[tool.pytest"}, "", ""),
        ({"tox.ini": "pytest\n[pytest"}, "", ""),
    ],
)
def test_options_that_the_suite_needs_are_kept(files: dict[str, str], kept: str, left_out: str) -> None:
    options = pytest_options({name: text.encode() for name, text in files.items()})
    expected = kept.format("ignore::pytest.PytestConfigWarning")
    assert options.kept == tuple(expected.split("|") if "|" in expected else expected.split())
    assert " ".join(options.left_out) == left_out


@pytest.mark.parametrize(
    ("settings", "named", "outside"),
    [
        ("", ["a_test.py", "t/test_x.py", "u/test_y.py"], 0),
        ("testpaths = t", ["t/test_x.py"], 2),
        ("testpaths = t* ./u/", ["t/test_x.py", "u/test_y.py"], 1),
        ("testpaths = gone", ["a_test.py", "t/test_x.py", "u/test_y.py"], 0),
        ("python_files = check_*.py", ["t/check_x.py"], 0),
        ("python_files = t/*.py", ["t/check_x.py", "t/test_x.py"], 0),
    ],
)
def test_the_files_of_the_tests_are_those_of_the_settings(
    settings: str, named: list[str], outside: int
) -> None:
    paths = ("a_test.py", "t/test_x.py", "u/test_y.py", "t/check_x.py", "t/conftest.py", "b.py")
    files = {**dict.fromkeys(paths, b""), "pytest.ini": f"[pytest]\n{settings}\n".encode()}
    assert files_of_tests(files) == (tuple(named), outside)
    tree = SourceTree(name="a", version="", files=files, licence="")
    assert not set(tree.sources) & set(named)


def test_settings_beside_which_none_are_written() -> None:
    files = {"src/a/b.py": b"", ".pytest.ini": b"[pytest]\naddopts = -q\n"}
    assert with_source_path(files)[".pytest.ini"] == b"[pytest]\npythonpath = src\naddopts = -q\n"
    assert pytest_arguments(with_source_path(files)) == ()
