"""A verifier on each kind of backend, and a task to cheat on."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ostinato.sandbox import Backend, Limits, ProcessBackend, SandboxError, Verifier, choose_backend
from ostinato.types import Task

LIMITS = Limits(wall_s=3.0, cpu_s=2, processes=20, memory_mb=300)
REPO = {
    "calc.py": "def alpha(a, b):\n    return a - b\n\n\ndef beta(n):\n    return [n] * 2\n",
    "test_calc.py": "from calc import alpha\n\n\ndef test_alpha():\n    assert alpha(2, 3) == 5\n",
    "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-q"\n',
}
HIDDEN = """
import math
import pytest
from calc import alpha, beta


def test_alpha():
    assert alpha(7, 4) == 11
    assert alpha(math.floor(2.5), 1) == 3
    assert type(alpha(1, 1)) is int


def test_beta():
    assert beta(3) == [3, 3]
    with pytest.raises(TypeError):
        alpha(1, None)
"""


@pytest.fixture(scope="session")
def ns_backend() -> Iterator[Backend]:
    try:
        backend = asyncio.run(choose_backend("ns"))
    except SandboxError as error:
        pytest.skip(str(error))
    yield backend
    asyncio.run(backend.aclose())


@pytest.fixture(params=["ns", "process"])
def verifier(request: pytest.FixtureRequest) -> Verifier:
    if request.param == "process":
        return Verifier(ProcessBackend(), LIMITS)
    return Verifier(request.getfixturevalue("ns_backend"), LIMITS)


@pytest.fixture
def ns_verifier(ns_backend: Backend) -> Verifier:
    return Verifier(ns_backend, LIMITS)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return make_task(tmp_path, HIDDEN, ("test_hidden.py::test_alpha", "test_hidden.py::test_beta"))


def make_task(directory: Path, hidden: str, test_ids: tuple[str, ...]) -> Task:
    repo, tests = directory / "environment" / "repo", directory / "tests"
    repo.mkdir(parents=True)
    tests.mkdir()
    for name, text in REPO.items():
        (repo / name).write_text(text)
    (tests / "test_hidden.py").write_text(hidden)
    protected = ("test_calc.py", "pyproject.toml")
    return Task(
        id="t",
        kind="fix",
        split="seeds",
        key="k",
        instruction="calc.py is off",
        directory=directory,
        test_ids=test_ids,
        protected=protected,
    )
