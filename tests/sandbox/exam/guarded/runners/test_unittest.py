"""A suite of unittest under guard: ids, fixtures, outcomes, and what cannot be imported.

Covers sandbox/exam/guarded/inside/under_unittest.py and sandbox/exam/guarded/runners/python.py.
"""

from pathlib import Path

import pytest
from fuzz.tasks_on_disk import write_suite

from ostinato.sandbox import Backend, Limits
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.types import Grade

REPO = {"src/calc.py": "def alpha(a, b):\n    return a - b\n", "tests/__init__.py": ""}
SUITE = {
    "tests/test_calc.py": """
import asyncio, unittest
from calc import alpha
from tests.helper import three

COUNT = []

def setUpModule():
    COUNT.append("module")

class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        COUNT.append("class")

    def setUp(self):
        self.one = 1

    def test_alpha(self):
        assert alpha(self.one, three()) == 4

    def test_many(self):
        for n in range(3):
            with self.subTest(n=n):
                self.assertEqual(alpha(n, 1), n + 1)

    def test_fixtures(self):
        self.assertEqual(COUNT, ["module", "class"])
        with self.assertRaises(TypeError):
            alpha(None, 1)

    @unittest.expectedFailure
    def test_expected(self):
        self.fail()

@unittest.skip("not here")
class Skipped(unittest.TestCase):
    def test_skipped(self): pass

class Async(unittest.IsolatedAsyncioTestCase):
    async def test_async(self):
        await asyncio.sleep(0)
        self.assertEqual(alpha(1, 1), 2)
""",
    "tests/helper.py": "def three():\n    return 3\n",
}
FILE = "tests/test_calc.py"
IDS = tuple(
    f"{FILE}::{name}"
    for name in ("Case::test_alpha", "Case::test_many", "Case::test_fixtures", "Async::test_async")
)
GOOD = {"src/calc.py": b"def alpha(a, b):\n    return a + b\n"}
LIMITS = Limits(wall_s=30, cpu_s=20)


async def test_a_suite_of_unittest_decides_under_guard(ns_backend: Backend, tmp_path: Path) -> None:
    verifier, task = Verifier(ns_backend, LIMITS), write_suite(tmp_path, REPO, SUITE, IDS, "unittest")
    good, none = await verifier.verify(task, GOOD), await verifier.verify(task, {})
    assert (good.passed, good.grade, good.void, good.tampered) == (True, Grade.GUARDED, None, ()), good
    assert list(none.outcomes.values()) == ["failed", "failed", "passed", "failed"], none
    assert (none.passed, none.tampered) == (False, ())


async def test_what_is_skipped_or_expected_to_fail_does_not_pass(ns_backend: Backend, tmp_path: Path) -> None:
    ids = (*IDS, f"{FILE}::Case::test_expected", f"{FILE}::Skipped::test_skipped")
    found = await Verifier(ns_backend, LIMITS).verify(
        write_suite(tmp_path, REPO, SUITE, ids, "unittest"), GOOD
    )
    assert (found.passed, found.tampered) == (False, ()), found
    assert [found.outcomes[each] for each in ids[-2:]] == ["skipped", "skipped"]


@pytest.mark.parametrize("text", ["import no_such_module\n", "raise SystemExit(0)\n"])
async def test_a_file_that_cannot_be_imported_is_named(
    ns_backend: Backend, tmp_path: Path, text: str
) -> None:
    suite, ids = {**SUITE, "tests/test_b.py": text}, (*IDS, "tests/test_b.py::Case::test_x")
    found = await Verifier(ns_backend, LIMITS).verify(
        write_suite(tmp_path, REPO, suite, ids, "unittest"), GOOD
    )
    assert (found.passed, found.outcomes[ids[-1]], found.outcomes[ids[0]]) == (False, "error", "passed")
    assert "tests/test_b.py was not collected" in found.notes[0]


async def test_a_fixture_of_a_class_that_fails_is_named(ns_backend: Backend, tmp_path: Path) -> None:
    broken = SUITE[FILE].replace('COUNT.append("class")', "alpha(None, 1)")
    task = write_suite(tmp_path, REPO, {**SUITE, FILE: broken}, IDS, "unittest")
    found = await Verifier(ns_backend, LIMITS).verify(task, GOOD)
    assert (found.passed, found.void, found.tampered) == (False, None, ()), found
    assert "setUpClass" in found.notes[0]
    assert (found.outcomes[IDS[0]], found.outcomes[IDS[-1]]) == ("missing", "passed")
