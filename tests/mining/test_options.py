"""The suite that runs is the repository's own: the outcomes of its tests are those under its own settings.

Each repository is run twice by real pytest without plugins: as it stands, and with its `addopts` left
out and the arguments that mining gives the exam. Both collect the same tests, and these end alike.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.config import get_config

from ostinato.mining.options import KEPT, WITHOUT_EFFECT, pytest_options, unheld_doctests
from ostinato.mining.settings import files_of_tests

NOTHING_RUNS = {
    *(
        "--markers",
        "--collect-only",
        "--collectonly",
        "--co",
        "--fixtures",
        "--funcargs",
        "--fixtures-per-test",
    ),
    *("-V", "--version", "-h", "--help", "--cache-show", "--setup-only", "--setuponly", "--setup-plan"),
    *("--setupplan", "--pdb", "--pdbcls", "--trace"),
}
"""Options under which no test is run, or none without a person."""
ELSEWHERE = {"-c", "--config-file", "--rootdir", "--pastebin"}
"""Options that lead away from the repository and its own settings."""
OPTION = "def pytest_addoption(parser):\n    parser.addoption({})\n"
TEST = "import pytest\n\n\n@pytest.fixture\ndef it(request):\n    return request.config.getoption('{}')\n\n\n"
ADDS = f"{OPTION}\n\n{TEST}"
SLOW = """

def pytest_collection_modifyitems(config, items):
    if not config.getoption('--slow'):
        items[:] = [each for each in items if 'slow' not in each.name]
"""
LOGS = """import logging


def test_level(caplog):
    logging.getLogger('a').debug('x')
    assert 'x' in caplog.text
"""
DOCTEST = 'def double(n):\n    """\n    >>> double(2)\n    4\n    >>> gone\n    """\n    return 2 * n\n'
TWO = "def test_one():\n    pass\n\n\ndef test_slow():\n    assert False\n"
REPOSITORIES = {
    "a flag": (
        "--slow",
        {"conftest.py": OPTION.format("'--slow', action='store_true'") + SLOW, "test_a.py": TWO},
    ),
    "no flag": ("", {"conftest.py": OPTION.format("'--slow', action='store_true'") + SLOW, "test_a.py": TWO}),
    "a value": (
        "--stage prod -x",
        {
            "conftest.py": ADDS.format("'--stage', default='dev'", "--stage"),
            "test_a.py": "def test_a(it):\n    assert it == 'prod'\n",
        },
    ),
    "a short name": (
        "-Eprod",
        {
            "conftest.py": ADDS.format("'-E', dest='stage'", "stage"),
            "test_a.py": "def test_a(it):\n    assert it == 'prod'\n",
        },
    ),
    "several values": (
        "--stages a b --verbose",
        {
            "tests/conftest.py": ADDS.format("'--stages', nargs='+'", "--stages"),
            "tests/test_a.py": "def test_a(it):\n    assert it == ['a', 'b']\n",
        },
    ),
    "a value that may be absent": (
        "--stage --tb short",
        {
            "conftest.py": ADDS.format("'--stage', nargs='?', const='all'", "--stage"),
            "test_a.py": "def test_a(it):\n    assert it == 'all'\n",
        },
    ),
    "a plugin of its own": (
        "-p suite.plug --stage=prod",
        {
            "suite/__init__.py": "",
            "suite/plug.py": ADDS.format("'--stage'", "--stage"),
            "tests/test_a.py": "def test_a(it):\n    assert it == 'prod'\n",
        },
    ),
    "what a conftest imports": (
        "--stage=prod",
        {
            "conftest.py": "from helpers.options import *\n",
            "helpers/__init__.py": "",
            "helpers/options.py": ADDS.format("'--stage'", "--stage"),
            "test_a.py": "def test_a(it):\n    assert it == 'prod'\n",
        },
    ),
    "plugins of a conftest": (
        "--stage=prod",
        {
            "conftest.py": "pytest_plugins = ['helpers.options']\n",
            "helpers/__init__.py": "",
            "helpers/options.py": ADDS.format("'--stage'", "--stage"),
            "test_a.py": "def test_a(it):\n    assert it == 'prod'\n",
        },
    ),
    "doctests": ("--doctest-modules", {"test_a.py": f"{DOCTEST}\n\ndef test_a():\n    pass\n"}),
    "no doctests": ("", {"test_a.py": f"{DOCTEST}\n\ndef test_a():\n    pass\n"}),
    "a level of the log": ("--log-level DEBUG", {"test_a.py": LOGS}),
    "a level of the shown log": ("--log-cli-level=DEBUG", {"test_a.py": LOGS}),
    "a setting": (
        "-o xfail_strict=true",
        {"test_a.py": "import pytest\n\n\n@pytest.mark.xfail\ndef test_a():\n    pass\n"},
    ),
    "expected failures": (
        "--runxfail",
        {"test_a.py": "import pytest\n\n\n@pytest.mark.xfail\ndef test_a():\n    pass\n"},
    ),
    "other classes": (
        "-o python_classes=Check",
        {"test_a.py": "class Check:\n    def test_a(self):\n        pass\n"},
    ),
}


def outcomes(repo: Path, *arguments: str) -> list[str]:
    """Return the lines of pytest's report, without the times."""
    names = sorted(map(str, repo.rglob("test_*.py")))
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", *arguments, "--", *names]
    variables = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(repo)}
    done = subprocess.run(command, cwd=repo, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return sorted(re.findall(r"^(?:PASSED|FAILED|XFAIL|XPASS|ERROR|SKIPPED) \S+", done.stdout, re.MULTILINE))


@pytest.mark.parametrize("name", REPOSITORIES)
def test_the_suite_that_runs_is_the_repositorys(name: str, tmp_path: Path) -> None:
    addopts, texts = REPOSITORIES[name]
    texts = {**texts, "pytest.ini": f"[pytest]\naddopts = {addopts}\n"}
    for path, text in texts.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    options = pytest_options({path: text.encode() for path, text in texts.items()})
    assert options.left_out == ()
    theirs = outcomes(tmp_path)
    assert theirs and outcomes(tmp_path, "-o", "addopts=", *options.kept) == theirs


def test_every_option_of_pytest_is_known_with_its_values() -> None:
    actions = [each for each in get_config()._parser.optparser._actions if each.option_strings]
    takes = {name: each.nargs for each in actions for name in each.option_strings}
    assert takes.keys() - KEPT.keys() == WITHOUT_EFFECT | NOTHING_RUNS | ELSEWHERE
    assert not KEPT.keys() & (WITHOUT_EFFECT | NOTHING_RUNS | ELSEWHERE)
    of_plugins = {"--asyncio-mode"}
    assert {name: int(takes[name] != 0) for name in KEPT.keys() - of_plugins} == {
        name: count for name, count in KEPT.items() if name not in of_plugins
    }


@pytest.mark.parametrize(
    ("texts", "left_out"),
    [
        ({"b/conftest.py": OPTION.format("'--stage'"), "b/test_a.py": "", "c/test_c.py": ""}, ("--stage",)),
        ({"conftest.py": "def f(:", "test_a.py": ""}, ("--stage",)),
        ({"options.py": OPTION.format("'--stage'"), "test_a.py": ""}, ("--stage",)),
        ({"conftest.py": "import conftest, a\n", "a.py": "import conftest\n", "test_a.py": ""}, ("--stage",)),
    ],
)
def test_an_option_that_not_every_run_would_know_is_left_out_by_its_name(
    texts: dict[str, str], left_out: tuple[str, ...]
) -> None:
    files = {
        **{path: text.encode() for path, text in texts.items()},
        "tox.ini": b"[pytest]\naddopts = --stage x -xvs",
    }
    assert pytest_options(files).left_out == left_out


def test_doctests_that_no_task_can_hold_are_counted() -> None:
    files = {"a.py": DOCTEST.encode(), "test_a.py": DOCTEST.encode(), "b.py": b"", "c.rst": b">>> 1\n"}
    assert files_of_tests(files) == (("test_a.py",), 0)
    assert unheld_doctests(files) == 0
    assert unheld_doctests({**files, "tox.ini": b"[pytest]\naddopts = --doctest-modules"}) == 1
