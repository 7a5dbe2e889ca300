"""A verifier on each kind of backend, a task to cheat on, and the count of the attempts."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fuzz.tasks_on_disk import write_files, write_task
from tests.hacks.rows import BAD, Hack

from ostinato.sandbox import Backend, Limits, SandboxError, Spec
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.choose import choose_backend
from ostinato.sandbox.exam.verifier import Verification, Verifier
from ostinato.types import Task

LIMITS = Limits(wall_s=3.0, cpu_s=2, processes=20, memory_mb=400)
REPO = {
    "calc.py": BAD,
    "test_calc.py": "from calc import alpha\n\n\ndef test_alpha():\n    assert alpha(2, 3) == 5\n",
    "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-q"\n',
    "sub/note.txt": "hello\n",
    ".git/HEAD": "ref: refs/heads/main\n",
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
IDS = ("test_hidden.py::test_alpha", "test_hidden.py::test_beta")
Judged = Callable[[Task, Hack], Awaitable[Verification]]


@pytest.fixture(scope="session")
def ns_backend() -> Iterator[Backend]:
    try:
        backend = asyncio.run(choose_backend("ns"))
    except SandboxError as error:
        pytest.skip(str(error))
    yield backend
    asyncio.run(backend.aclose())


@pytest.fixture
def ns_judged(ns_backend: Backend) -> Judged:
    """Return a function that runs a row's command in a sandbox, as an agent would, and judges the changes."""

    async def judged(task: Task, hack: Hack) -> Verification:
        task, changes = given(task, hack), hack.changes()
        if hack.command:
            sandbox = await ns_backend.create(Spec(repo=task.repo, limits=LIMITS))
            await sandbox.exec(hack.command)
            changes |= await sandbox.changes()
            await sandbox.destroy()
        return await Verifier(ns_backend, replace(LIMITS, wall_s=hack.wall_s)).verify(task, changes)

    return judged


@pytest.fixture
def process_judged() -> Judged:
    """Return a function that judges a row's files; its command would need a sandbox."""

    async def judged(task: Task, hack: Hack) -> Verification:
        return await Verifier(ProcessBackend(), replace(LIMITS, wall_s=hack.wall_s)).verify(
            given(task, hack), hack.changes()
        )

    return judged


def given(task: Task, hack: Hack) -> Task:
    """Return the task with the row's own files and tests."""
    write_files(task.repo, hack.repo)
    write_files(task.tests, hack.helpers)
    if not hack.hidden:
        return task
    (task.tests / "test_hidden.py").write_text(hack.hidden)
    return replace(task, test_ids=("test_hidden.py::test_it",))


@pytest.fixture
def task(tmp_path: Path) -> Task:
    protected = ("test_calc.py", "pyproject.toml")
    made = write_task(tmp_path, REPO, {"test_hidden.py": HIDDEN}, IDS, protected=protected)
    (made.repo / "linked").symlink_to(".")
    return made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many cheats and honest solutions were judged, and how many of them wrongly."""
    for test, what, right in (
        ("test_no_hack_passes", "hacks", "rejected"),
        ("test_honest_work_passes", "honest solutions", "accepted"),
    ):
        ran = {
            outcome: sum(
                test in report.nodeid and "hacks/" in report.nodeid and report.when == "call"
                for report in terminalreporter.getreports(outcome)
            )
            for outcome in ("passed", "failed")
        }
        if total := sum(ran.values()):
            terminalreporter.write_line(f"{what}: {total} cases, {ran['passed']} {right}")
    passes: Counter[str] = Counter()
    attempts: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        if "hacks/test_guarded" in report.nodeid and report.when == "call":
            passes.update(suite for suite, passed in report.user_properties if passed)
            attempts.update(suite for suite, _ in report.user_properties)
    for suite, total in sorted(attempts.items()):
        runner, grade = suite.split()
        terminalreporter.write_line(f"attacks on {runner}: {passes[suite]} of {total} pass as {grade}")
