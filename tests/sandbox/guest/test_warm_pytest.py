"""The prepared pytest prints the same as a fresh one.

Covers sandbox/guest/warm_pytest.py and sandbox/guest/pytest_command.py.
"""

import json
import re
from pathlib import Path

import pytest

from ostinato.sandbox import Backend, Spec
from ostinato.sandbox.exam.guarded.inside import planted, start, under_pytest
from ostinato.sandbox.exam.guarded.inside.sources import SOURCES, START
from ostinato.sandbox.exam.guarded.reports import SuiteReports
from ostinato.sandbox.exam.guarded.runners.base import follow
from ostinato.sandbox.guest.warm_pytest import recognise

FAILING = """
import pytest
from calc import alpha

@pytest.fixture
def number():
    return 2

def test_good(number, tmp_path, capsys, monkeypatch):
    (tmp_path / "x").write_text("x")
    assert alpha(number, 3) == 5

def test_bad(number):
    print("seen")
    assert alpha(number, 3) == 6

@pytest.mark.parametrize("n", [1, 2])
def test_many(n):
    assert n

def test_skipped():
    pytest.skip("no")

def test_error(absent):
    pass
"""
COMMANDS = [
    "",
    " -q",
    " -v test_more.py",
    " -qq --tb=no",
    " --collect-only -q",
    " -x",
    " -k good",
    " --nonsense",
]
COMMANDS += [
    " test_absent.py",
    " -p no:terminal -q",
    " --version",
    " --fixtures -q",
    " -rA --durations=1 --durations-min=100",
    " -h",
]


def plain(output: str) -> str:
    return re.sub(r"in \d+\.\d+s|\d+\.\d+s", "T", output)


@pytest.mark.parametrize("prefix", ["python -m pytest", "pytest"])
@pytest.mark.parametrize("arguments", COMMANDS)
@pytest.mark.slow
async def test_the_output_is_that_of_a_fresh_interpreter(
    ns_backend: Backend, repo: Path, prefix: str, arguments: str
) -> None:
    (repo / "test_more.py").write_text(FAILING)
    (repo / "conftest.py").write_text("import sys\nsys.path.insert(0, '.')\n")
    sandbox = await ns_backend.create(Spec(repo=repo))
    warm = await sandbox.exec(prefix + arguments)
    fresh = await sandbox.exec("true; " + prefix + arguments)
    await sandbox.destroy()
    assert (warm.exit_code, plain(warm.output)) == (fresh.exit_code, plain(fresh.output))


@pytest.mark.parametrize(
    "command",
    [
        "pytest | tail",
        "cd x && pytest",
        "X=1 pytest",
        "pytest; rm x",
        "python -c pytest",
        "pytest test_*.py",
        "pytest 'a",
    ],
)
def test_anything_else_goes_to_the_shell(command: str) -> None:
    assert recognise(command, "/nowhere") is None


def test_a_repository_that_shadows_a_loaded_module_goes_to_the_shell(tmp_path: Path) -> None:
    assert recognise("pytest", str(tmp_path)) is not None
    (tmp_path / "json.py").touch()
    assert recognise("pytest", str(tmp_path)) is None


async def test_the_repository_is_imported_afresh_each_time(ns_backend: Backend, repo: Path) -> None:
    sandbox = await ns_backend.create(Spec(repo=repo))
    assert (await sandbox.exec("python -m pytest")).exit_code == 0
    await sandbox.write("calc.py", b"def alpha(a, b):\n    return a - b\n")
    assert (await sandbox.exec("python -m pytest")).exit_code == 1
    await sandbox.write("calc.py", (repo / "calc.py").read_bytes())
    assert (await sandbox.exec("python -m pytest")).exit_code == 0
    await sandbox.destroy()


@pytest.mark.parametrize("added", ["", "\n# from another version\n"])
async def test_an_order_runs_by_its_own_sources(ns_backend: Backend, repo: Path, added: str) -> None:
    (repo / "test_it.py").write_text(
        "from calc import alpha\n\n\ndef test_it():\n    assert alpha(2, 3) == 5\n"
    )
    sandbox = await ns_backend.create(Spec(repo=repo))
    order = [(test, kind) for kind in ("", *planted.KINDS) for test in ["test_it.py::test_it"]]
    plan = {
        "nonce": "ab" * 32,
        "root": sandbox.root,
        "order": order,
        "arguments": (),
        "known": {},
        "hidden": [],
    }
    sources = {name: text + added for name, text in SOURCES.items()}
    body = json.dumps(
        {"start": START, "sources": sources, "main": under_pytest.__name__, "plan": plan}
    ).encode()
    reports = SuiteReports("ab" * 32, order, planted.KINDS)
    await follow(sandbox, start.COMMAND, b"%d\n%s" % (len(body), body), reports)
    await sandbox.destroy()
    assert (reports.finish(), reports.signs) == ({"test_it.py::test_it": "passed"}, [])
