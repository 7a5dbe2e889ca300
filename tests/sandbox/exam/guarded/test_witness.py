"""The changes that installed libraries make to the machinery: they are told from those of a candidate.

Covers sandbox/exam/guarded/witness.py and sandbox/exam/guarded/inside/witness.py.
"""

import inspect
import textwrap
import types
from dataclasses import replace
from pathlib import Path

import pytest
from fuzz.tasks_on_disk import write_suite

from ostinato.sandbox import Backend, Limits
from ostinato.sandbox.base import Exam
from ostinato.sandbox.exam.guarded.inside.watch import digest_of
from ostinato.sandbox.exam.guarded.reports import ChangedName
from ostinato.sandbox.exam.guarded.witness import Witness
from ostinato.sandbox.exam.verifier import Verification, Verifier
from ostinato.types import Task

LIMITS = Limits(wall_s=120, cpu_s=60, memory_mb=2048)
FILE = "tests/test_calc.py"
IDS = (f"{FILE}::test_alpha",)
TESTS = "from calc import alpha\n\n\ndef test_alpha():\n    assert alpha(7, 4) == 11\n"
GOOD = "def alpha(a, b):\n    return a + b\n"
CHANGED = "inspect.getfile was changed"


def task(directory: Path, tests: str = TESTS) -> Task:
    return write_suite(directory, {"calc.py": "def alpha(a, b): return a - b\n"}, {FILE: tests}, IDS)


async def verdict(backend: Backend, made: Task, code: str) -> Verification:
    return await Verifier(backend, LIMITS, variations=0).verify(
        made, {"calc.py": textwrap.dedent(code).encode()}
    )


@pytest.mark.slow  # torch is loaded twice
async def test_a_library_that_changes_the_machinery_when_it_is_loaded_is_no_sign(
    ns_backend: Backend, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    found = await verdict(ns_backend, task(tmp_path, f"import torch.package\n{TESTS}"), GOOD)
    assert (found.passed, found.tampered, found.void) == (True, (), None), found


@pytest.mark.parametrize(
    "code",
    [
        "import inspect, posixpath\ninspect.getfile = posixpath.basename\n",
        "import inspect\ndef getfile(value): return 'calc.py'\ninspect.getfile = getfile\n",
        "import inspect, textwrap as t\ninspect.getfile = t.dedent\nt.dedent.__module__ = 'colorsys'\n",
    ],
    ids=["a function of another library", "a function of its own", "a function with a false module"],
)
async def test_the_same_change_by_a_candidate_is_a_sign(
    ns_backend: Backend, tmp_path: Path, code: str
) -> None:
    found = await verdict(ns_backend, task(tmp_path), code + GOOD)
    assert (found.passed, found.tampered) == (False, (CHANGED,)), found


async def test_a_change_is_explained_by_its_library_alone(ns_backend: Backend, tmp_path: Path) -> None:
    exam = Exam(repo=tmp_path, tests=tmp_path, limits=LIMITS)
    claims = [
        ChangedName(name="inspect.getfile", module=module, digest="9f") for module in ("no_such", "colorsys")
    ]
    witness = Witness(ns_backend)
    assert await witness.unexplained(exam, []) == []
    assert await witness.unexplained(exam, claims) == [CHANGED, CHANGED]


def test_the_digest_of_a_function_is_that_of_its_code() -> None:
    assert digest_of(textwrap.dedent) not in ("", digest_of(textwrap.indent))


def test_only_a_function_of_a_loaded_module_with_its_names_has_a_digest() -> None:
    copy = types.FunctionType(textwrap.dedent.__code__, dict(vars(textwrap)), "dedent")
    copy.__module__ = "textwrap"
    assert digest_of(copy) == ""
    assert [digest_of(each) for each in (len, replace(LIMITS), None, inspect)] == ["", "", "", ""]


def test_a_function_that_calls_another_has_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest_of(inspect.getsourcefile)
    monkeypatch.setattr(inspect, "getfile", textwrap.dedent)
    assert digest_of(inspect.getsourcefile) not in ("", before)
