"""Honest work passes, everything else fails, and a failure of our own is void.

Covers sandbox/exam/judged/judge.py, sandbox/exam/judged/worker.py, sandbox/exam/judged/questions.py,
sandbox/exam/judged/host.py, sandbox/exam/judged/channel.py and sandbox/exam/variations.py.
The hacks in tests/hacks cover sandbox/exam/judged/exceptions.py and
sandbox/exam/judged/needed_modules.py.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fuzz.tasks_on_disk import write_task

from ostinato.sandbox import (
    Backend,
    Capabilities,
    Exam,
    Isolation,
    Limits,
    Sandbox,
    SandboxError,
    Spec,
)
from ostinato.sandbox.backends.namespaces.backend import NsBackend
from ostinato.sandbox.exam.judged.host import runs
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.tasks.pebble import generate, write
from ostinato.types import Grade, Task

HIDDEN = """
import unittest
import pytest
from calc import alpha, LIMIT
from pkg.deep import gamma


def test_alpha(tmp_path):
    assert alpha(7, b=4) == 11
    with pytest.raises(TypeError):
        alpha(1, None)


@pytest.mark.parametrize("value", [[1, (2, {"k": {3}})], "é", b"x", -0.0, None, 10**100])
def test_gamma(value):
    assert gamma(value) == value
    assert type(gamma(value)) is type(value)


def test_limit():
    assert LIMIT == 5


class Case(unittest.TestCase):
    def test_case(self):
        self.assertEqual(alpha(1, 2), 3)
"""
GAMMA = [
    f"test_hidden.py::test_gamma[{name}]" for name in ("value0", "\\xe9", "x", "-0.0", "None", str(10**100))
]
IDS = ("test_hidden.py::test_alpha", *GAMMA, "test_hidden.py::test_limit", "test_hidden.py::Case::test_case")
HONEST = {
    "plain": "LIMIT = 5\ndef alpha(a, b):\n    return a + b\n",
    "noisy": "import sys\nprint('x' * 10**6)\nLIMIT = 5\ndef alpha(a, b):\n    print(a)\n    return a + b\n",
    "stateful": """LIMIT = 2 + 3
import helper
class Adder:
    def __call__(self, a, b): return helper.add(a, b)
alpha = Adder()
""",
}


@pytest.fixture
def task(tmp_path: Path) -> Task:
    repo = {
        "calc.py": "LIMIT = 5\ndef alpha(a, b):\n    return a - b\n",
        "pkg/__init__.py": "",
        "pkg/deep.py": "def gamma(v):\n    return v\n",
        "test_calc.py": "def test(): pass\n",
    }
    protected = ("test_calc.py", "shown/")
    made = write_task(tmp_path, repo, {"test_hidden.py": HIDDEN}, IDS, protected=protected)
    (made.repo / "shown").mkdir()
    return made


def with_ids(task: Task, *ids: str) -> Task:
    return Task(**{name: getattr(task, name) for name in Task.__dataclass_fields__} | {"test_ids": ids})


def changes(code: str) -> dict[str, bytes | None]:
    return {"calc.py": code.encode(), "helper.py": b"def add(a, b):\n    return a + b\n"}


@pytest.mark.parametrize("style", HONEST)
async def test_honest_work_passes(backend: Backend, task: Task, style: str) -> None:
    verification = await Verifier(backend).verify(task, changes(HONEST[style]))
    assert verification.passed, verification
    assert set(verification.outcomes) == set(IDS)


async def test_no_work_fails(backend: Backend, task: Task) -> None:
    verification = await Verifier(backend).verify(task, {})
    assert (verification.passed, verification.void) == (False, None)
    assert verification.outcomes["test_hidden.py::test_alpha"] == "failed"
    assert verification.outcomes["test_hidden.py::test_limit"] == "passed"


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ("./test_calc.py", "test_calc.py"),
        ("shown/../test_calc.py", "test_calc.py"),
        ("./shown/", "shown/x"),
        ("linked", "shown/target"),
        ("linked", "linked"),
        ("way/", "shown/x"),
    ],
)
async def test_an_entry_protects_in_every_spelling(
    ns_backend: Backend, task: Task, entry: str, path: str
) -> None:
    """An entry protects its own name and, if it is a link of the repository, the target."""
    (task.repo / "shown/target").write_text("as given")
    (task.repo / "linked").symlink_to("shown/target")
    (task.repo / "way").symlink_to("shown")
    fields = {name: getattr(task, name) for name in Task.__dataclass_fields__}
    verification = await Verifier(ns_backend).verify(
        Task(**fields | {"protected": (entry,)}), {path: b"mine"}
    )
    assert verification.tampered == (path,)


async def test_a_module_that_does_not_import_is_an_error(backend: Backend, task: Task) -> None:
    verification = await Verifier(backend).verify(task, {"calc.py": b"def alpha(:"})
    assert (verification.passed, verification.void) == (False, None)
    assert all(verification.outcomes[name] == "error" for name in IDS)


async def test_missing_and_extra_ids_fail(ns_backend: Backend, task: Task) -> None:
    good = changes(HONEST["plain"])
    more = await Verifier(ns_backend).verify(with_ids(task, *IDS, "test_hidden.py::test_more"), good)
    assert not more.passed
    assert more.outcomes["test_hidden.py::test_more"] == "missing"
    fewer = await Verifier(ns_backend).verify(with_ids(task, *IDS[1:]), good)
    assert not fewer.passed
    assert fewer.outcomes[IDS[0]] == "passed"


async def test_a_skipped_or_expected_failure_is_not_a_pass(ns_backend: Backend, task: Task) -> None:
    hidden = (
        "import pytest\n@pytest.mark.skip\ndef test_a(): pass\n@pytest.mark.xfail\ndef test_b(): assert 0\n"
    )
    (task.tests / "test_hidden.py").write_text(hidden + "@pytest.mark.xfail\ndef test_c(): pass\n")
    ids = [f"test_hidden.py::test_{name}" for name in "abc"]
    verification = await Verifier(ns_backend).verify(with_ids(task, *ids), {})
    assert [verification.outcomes[name] for name in ids] == ["skipped", "skipped", "failed"]


@pytest.mark.parametrize("path", ["test_calc.py", "./test_calc.py", "pkg/../test_calc.py", "shown/inner.py"])
async def test_tampering_is_reported_and_undone(ns_backend: Backend, task: Task, path: str) -> None:
    verification = await Verifier(ns_backend).verify(
        task, {**changes(HONEST["plain"]), path: b"import os; os._exit(0)"}
    )
    assert verification.tampered == (path,)
    assert verification.passed


async def test_a_path_that_leads_out_fails(ns_backend: Backend, task: Task) -> None:
    verification = await Verifier(ns_backend).verify(task, {**changes(HONEST["plain"]), "../../evil": b""})
    assert (verification.passed, verification.void) == (False, None)
    assert "evil" in verification.tampered[0]


async def test_impossible_changes_fail_on_every_backend(backend: Backend, task: Task) -> None:
    verification = await Verifier(backend).verify(task, {**changes(HONEST["plain"]), "calc.py/below": b""})
    assert (verification.passed, verification.void) == (False, None)


async def test_a_missing_repository_is_void(ns_backend: Backend, task: Task) -> None:
    task.repo.rename(task.repo.parent / "elsewhere")
    verification = await Verifier(ns_backend).verify(task, {})
    assert not verification.passed
    assert verification.void is not None
    assert "no repository" in verification.void


async def test_a_zygote_killed_under_an_exam_is_void(task: Task) -> None:
    backend = NsBackend()
    slow = changes("LIMIT = 5\nimport time\ntime.sleep(1000)\n")
    await (await backend.create(Spec(repo=task.repo))).destroy()
    running = asyncio.create_task(Verifier(backend).verify(task, slow))
    await asyncio.sleep(0.5)
    assert backend._zygote is not None
    backend._zygote._process.kill()
    verification = await running
    assert verification.void is not None
    assert not verification.passed
    again = await Verifier(backend).verify(task, changes(HONEST["plain"]))
    assert again.passed
    await backend.aclose()


ONCE = (
    "from pathlib import Path\n\n\ndef alpha(a, b):\n"
    "    if Path('written').exists() and not alpha.mine:\n        raise FileExistsError('written')\n"
    "    alpha.mine = True\n    Path('written').touch()\n    return a * b\n\n\nalpha.mine = False\n"
)
FIXTURES = (
    "import pytest\nfrom calc import alpha\n\nopened = []\n\n\n"
    "@pytest.fixture(scope='session')\ndef found():\n    opened.append(alpha(2, 3))\n    yield opened\n"
    "    opened.clear()\n\n\n"
    "def test_a(found):\n    assert found == [6]\n\n\n"
    "@pytest.mark.parametrize('n', [1, 2])\ndef test_b(found, n):\n    assert found == [6]\n"
)


async def test_a_second_run_starts_afresh_for_the_candidate_and_for_fixtures(
    backend: Backend, task: Task
) -> None:
    (task.tests / "test_hidden.py").write_text(FIXTURES)
    ids = [f"test_hidden.py::test_{name}" for name in ("a", "b[1]", "b[2]")]
    verification = await Verifier(backend, variations=2).verify(
        with_ids(task, *ids), {"calc.py": ONCE.encode()}
    )
    assert (verification.passed, verification.void) == (True, None), verification.outcomes


async def test_a_run_without_a_question_is_followed_by_the_next(ns_backend: Backend, task: Task) -> None:
    (task.tests / "test_hidden.py").write_text("def test_a():\n    assert True\n")
    exam = Exam(repo=task.repo, tests=task.tests, variations=2)
    assert await ns_backend.examine(exam) == [{"test_hidden.py::test_a": "passed"}] * 3


async def test_a_judge_killed_before_it_took_its_worker_is_void(task: Task) -> None:
    ours, judge = socket.socketpair()
    asks, answers = socket.socketpair()

    @asynccontextmanager
    async def working(variation: int) -> AsyncIterator[socket.socket]:
        asyncio.get_running_loop().call_later(0.05, judge.close)
        yield asks

    with ours, asks, answers, pytest.raises(SandboxError, match="the exam is void"):
        await runs(ours, Exam(repo=task.repo, tests=task.tests), working)


class Broken:
    """A backend whose exams fail."""

    name, capabilities = "broken", Capabilities(isolation=Isolation.PROCESS)

    async def create(self, spec: Spec) -> Sandbox:
        raise SandboxError(f"no sandbox for {spec}")

    async def examine(self, exam: Exam) -> list[dict[str, str]]:
        raise SandboxError(f"no exam of {exam.repo}")

    async def aclose(self) -> None:
        pass


async def test_a_backend_that_fails_is_void(task: Task) -> None:
    verification = await Verifier(Broken()).verify(task, {})
    assert (verification.passed, verification.outcomes) == (False, {})
    assert verification.void is not None


async def test_many_at_once_agree(ns_backend: Backend, task: Task) -> None:
    verifier = Verifier(ns_backend)
    work: list[Mapping[str, bytes | None]] = [changes(HONEST["plain"]), {}] * 6
    verifications = await asyncio.gather(*(verifier.verify(task, each) for each in work))
    assert [each.passed for each in verifications] == [True, False] * 6


async def test_a_test_made_endless_by_a_response_fails_and_is_not_void(
    ns_backend: Backend, task: Task
) -> None:
    (task.tests / "test_hidden.py").write_text(
        "from calc import alpha\n\ndef test_a():\n    assert sum(1 for _ in range(alpha(1, 2))) == 3\n"
        "\ndef test_b():\n    assert alpha(1, 1) == 2\n"
    )
    endless = {"calc.py": b"def alpha(a, b): return 10 ** 12\n"}
    ids = ("test_hidden.py::test_a", "test_hidden.py::test_b")
    verification = await Verifier(ns_backend, Limits(wall_s=1)).verify(with_ids(task, *ids), endless)
    assert (verification.passed, verification.void) == (False, None)
    assert set(verification.outcomes.values()) <= {"missing", "failed"}


UNSTEADY = {
    "order": "n = 0\ndef alpha(a, b):\n    global n\n    n += 1\n    return 1 if n == 1 else 2\n",
    "chance": "import random\ndef alpha(a, b):\n    return {1: 1, 2: 2}[a] if random.random() > 0.8 else 3\n",
}


@pytest.mark.parametrize("kind", UNSTEADY)
async def test_a_pass_in_one_order_only_is_unstable(backend: Backend, task: Task, kind: str) -> None:
    (task.tests / "test_hidden.py").write_text(
        "from calc import alpha\n\ndef test_a():\n    assert alpha(1, 0) == 1\n"
        "\ndef test_b():\n    assert alpha(2, 0) == 2\n"
    )
    checked = with_ids(task, "test_hidden.py::test_a", "test_hidden.py::test_b")
    work = {"calc.py": UNSTEADY[kind].encode()}
    assert kind == "chance" or (await Verifier(backend, variations=0).verify(checked, work)).passed
    verification = await Verifier(backend).verify(checked, work)
    assert not verification.passed
    assert kind == "chance" or "unstable" in verification.outcomes.values()


@pytest.mark.parametrize("kind", ["carry", "rename", "add"])
async def test_the_judge_holds_the_pebbles_that_change_more_than_a_line(
    backend: Backend, tmp_path: Path, kind: str
) -> None:
    pebble = generate(kind, "seeds", 5)
    files = pebble.files
    for change in pebble.changes:
        files[change.path] = files[change.path].replace(f"{change.old}\n", f"{change.new}\n")
    right = {change.path: files[change.path].encode() for change in pebble.changes}
    task, verifier = write(pebble, tmp_path / "pebble"), Verifier(backend)
    verification = await verifier.verify(task, right)
    assert (verification.passed, verification.grade) == (True, Grade.JUDGED)
    assert not (await verifier.verify(task, {})).passed
    if kind == "rename":
        kept = f"{files[pebble.targets[0].path]}\n\n{pebble.targets[0].source()}"
        assert not (await verifier.verify(task, {pebble.targets[0].path: kept.encode()})).passed
