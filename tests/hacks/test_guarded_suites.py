"""The attacks on guarded suites of unittest, Node and Go: which pass, and honest work that must pass.

`make test` tries a sample where each attack takes a second or more; `make test-sandboxes` tries all.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from fuzz.tasks_on_disk import write_suite, write_task
from tests.hacks import guarded_go, guarded_node, guarded_unittest
from tests.hacks.rows import Hack

from ostinato.sandbox import Backend, Limits
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.types import Grade, Task

LIMITS = Limits(wall_s=120, cpu_s=60, memory_mb=4096, disk_mb=512, processes=256)
CORPORA: Mapping[str, tuple[ModuleType, str, int]] = {
    "unittest": (guarded_unittest, "python3", 1),
    "node": (guarded_node, "node", 4),
    "go": (guarded_go, "go", 12),
}
"""The corpus of each runner, the program that it needs, and of how many attacks `make test` tries one."""


def cases(kind: str) -> Iterator[object]:
    for runner, (corpus, program, every) in CORPORA.items():
        for number, hack in enumerate(getattr(corpus, kind)):
            marks = [pytest.mark.toolchains] * (runner != "unittest")
            marks += [pytest.mark.corpus] * (kind == "HACKS" and number % every > 0)
            if shutil.which(program) is None:
                marks.append(
                    pytest.mark.skip(reason=f"needs {program}, which `make test-sandboxes` installs")
                )
            yield pytest.param(runner, hack, marks=marks, id=hack.name)


def written(directory: Path, runner: str) -> Task:
    corpus = CORPORA[runner][0]
    return write_suite(directory, corpus.REPO, {corpus.FILE: corpus.TESTS}, corpus.IDS, runner)


@pytest.mark.parametrize(("runner", "hack"), [*cases("HACKS")])
async def test_an_attack_passes_only_where_the_page_says(
    ns_backend: Backend,
    tmp_path: Path,
    runner: str,
    hack: Hack,
    record_property: Callable[[str, object], None],
) -> None:
    found = await Verifier(ns_backend, LIMITS).verify(written(tmp_path, runner), hack.changes())
    record_property(f"{runner} {found.grade}", found.passed)
    assert (found.grade, found.void) == (Grade.GUARDED, None), found
    assert found.passed is (hack.name in CORPORA[runner][0].PASSES), found


@pytest.mark.parametrize("hack", guarded_unittest.HACKS, ids=lambda hack: hack.name)
async def test_no_attack_on_unittest_passes_a_judge(
    ns_backend: Backend, tmp_path: Path, hack: Hack, record_property: Callable[[str, object], None]
) -> None:
    ids = [f"test_hidden.py::{each.partition('::')[2]}" for each in guarded_unittest.IDS]
    hidden = {"test_hidden.py": guarded_unittest.TESTS}
    task = write_task(tmp_path, guarded_unittest.REPO, hidden, ids)
    found = await Verifier(ns_backend, Limits(wall_s=3, cpu_s=2)).verify(task, hack.changes())
    record_property(f"unittest {found.grade}", found.passed)
    assert (found.passed, found.grade, found.void) == (False, Grade.JUDGED, None), found


@pytest.mark.parametrize(("runner", "work"), [*cases("HONEST")])
async def test_honest_work_passes(ns_backend: Backend, tmp_path: Path, runner: str, work: Hack) -> None:
    found = await Verifier(ns_backend, LIMITS).verify(written(tmp_path, runner), work.changes())
    assert (found.passed, found.tampered) == (True, ()), found


def test_the_corpora_are_as_large_as_they_say() -> None:
    fewest: Sequence[tuple[str, int]] = (("unittest", 20), ("node", 15), ("go", 10))
    for runner, least in fewest:
        corpus = CORPORA[runner][0]
        names = [hack.name for hack in corpus.HACKS]
        assert len(set(names)) == len(names) >= least
        assert set(corpus.PASSES) <= set(names)
