# ruff: noqa: E501
"""Who decides each form of assertion, read from its text alone.

Covers assertions/deciding.py and assertions/values.py.
"""

import pytest

from ostinato.assertions import undecided

HEAD = "import pytest, calc, helpers\nfrom calc import alpha, Point, is_prime\n"
JUDGED = [
    "assert alpha(7) == 28",
    "assert 28 == alpha(7)",
    "x = 7\nassert alpha(x) == x * 4",
    "assert alpha(1) == 3 and alpha(2) == 4",
    "assert 'x' in alpha(1)",
    "assert alpha(1) is None",
    "assert str(alpha(1)) == repr(alpha(1)) == '3'",
    "assert alpha(1) is alpha(1)\nassert alpha(1) == 3",
    "assert alpha(1) == pytest.approx(3)",
    "import math\nassert math.isclose(alpha(1), 3)",
    "import numpy as np\nnp.testing.assert_allclose(alpha(1), 3)",
    "assert isinstance(alpha(1), list)",
    "assert isinstance(alpha(1), Point)\nassert not isinstance(alpha(2), Point)",
    "p = alpha(1)\nassert isinstance(p, Point)\nassert p.x == 1",
    "assert is_prime(7)\nassert not is_prime(8)",
    "assert is_prime(7) is True\nassert is_prime(8) is False",
    "assert alpha(1).empty and not alpha(2).empty",
    "assert not hasattr(calc, 'old')",
    "assert [alpha(x) for x in (1, 2)] == [3, 4]",
    "assert all(alpha(x) == y for x, y in [(1, 2)])",
    "for x, y in [(1, 2)]:\n    assert alpha(x) == y",
    "assert calc.decode(calc.encode('x')) == 'x'",
    "with pytest.raises(ValueError):\n    alpha(-1)",
    "with pytest.raises(calc.Error) as e:\n    alpha(-1)\nassert str(e.value) == 'bad'",
    "with pytest.warns(UserWarning):\n    alpha(1)",
    "pytest.raises(ValueError, alpha, -1)",
    "with calc.Session() as s:\n    assert s.x == 3",
    "try:\n    alpha(1)\nexcept ValueError as e:\n    pass\nassert alpha(1) == 3",
    "xs = [3, 1]\nalpha(xs)\nassert xs == [1, 3]",
    "s = calc.Stack()\nx = 5\ns.push(x)\nassert s.pop() == x",
    "out = []\nout.append(alpha(1))\nassert out == [3]",
    "seen = {}\nseen['a'] = alpha(1)\nassert seen == {'a': 3}",
    "def check(got, want):\n    assert got == want\ncheck(alpha(1), 3)",
    "def same(got, want): return got == want\nassert same(alpha(1), want=3)",
    "@calc.cached\ndef f(n): return n\nassert f(3) == 3",
    "def f(): list(alpha(-1))\npytest.raises(ValueError, f)",
    "def again(n): return again(n - 1) if n else alpha(1)\nassert again(3) == 3",
    "from unittest.mock import Mock\nm = Mock()\nalpha(m)\nm.assert_called_once_with(3)",
]
UNDECIDED = [
    "pass",
    "assert 3 == 3",
    "assert is_prime(7)",
    "assert alpha(7) == calc.WANT",
    "assert alpha(7) == Point(1)",
    "assert alpha(1) == alpha(1)",
    "assert alpha(1) is calc.X",
    "assert isinstance(alpha(7), Point)",
    "assert isinstance(alpha(1), Point)\nassert isinstance(alpha(2), Point)",
    "import math\nassert math.isclose(alpha(1), calc.X)",
    "assert helpers.same(alpha(7), 28)",
    "assert helpers.same(alpha(7), 28) is True",
    "assert not helpers.differs(alpha(7), 28)",
    "assert helpers.differences(alpha(7), 28) == []",
    "assert helpers.expect(alpha(7)).equals(28)",
    "assert getattr(helpers, 'same')(alpha(1), 3)",
    "helpers.check(alpha(7), 28)",
    "from helpers import *\nassert same(alpha(7), 28)",
    "import newmod\nassert newmod.same(alpha(7), 28)",
    "import importlib\nassert importlib.import_module('helpers').same(alpha(1), 3)",
    "import sys\nassert sys.modules['helpers'].same(alpha(1), 3)",
    "def check(got):\n    assert got == calc.W\ncheck(alpha(7))",
    "if calc.FEATURE:\n    assert alpha(7) == 28",
    "if not calc.F:\n    return\nassert alpha(7) == 28",
    "match calc.F:\n    case 1:\n        assert alpha(7) == 28",
    "while calc.F():\n    assert alpha(7) == 28",
    "for x, y in calc.CASES:\n    assert alpha(x) == y",
    "for x in calc.CASES:\n    assert x == 1",
    "assert all(x == 3 for x in alpha(7))",
    "assert all(map(helpers.ok, [1, 2]))",
    "assert list(alpha(1))",
    "assert alpha(7) == 28 or calc.F",
    "assert (alpha(7) == 28) if calc.F else True",
    "from contextlib import suppress\nwith suppress(calc.Error):\n    assert alpha(7) == 28",
    "with pytest.raises(calc.Error):\n    assert alpha(7) == 28",
    "try:\n    assert alpha(7) == 28\nexcept calc.Error:\n    pass",
]


def said(text: str, **files: str) -> tuple[str, ...]:
    return undecided({"test_h.py": text, **files}, ["calc.py", "src/helpers.py", "notes/a.txt"])


def within(body: str) -> str:
    return f"{HEAD}\n\ndef test_it():\n    " + body.replace("\n", "\n    ") + "\n"


@pytest.mark.parametrize("body", JUDGED)
def test_the_judge_decides(body: str) -> None:
    assert said(within(body)) == ()


@pytest.mark.parametrize("body", UNDECIDED)
def test_the_code_under_test_decides(body: str) -> None:
    (why,) = said(within(body))
    assert why.startswith("test_h.py::test_it")


CASE = """
import unittest
from calc import alpha, WANT, Base
class Shared({base}):
    def same(self, got, want): self.assertEqual(got, want)
class TestIt(Shared):
    wanted = {wanted}
    def setUp(self): self.got = alpha(7)
    def test_a(self): self.assertEqual(self.got, self.wanted)
    def test_b(self): self.same(self.got, 28)
    def test_c(self):
        with self.assertRaises(ValueError): alpha(-1)
"""


def test_cases_of_unittest_are_read_with_their_bases_and_what_they_set_up() -> None:
    ok, other = "unittest.TestCase", "Base"
    assert said(CASE.format(base=ok, wanted=28)) == ()
    assert [why.split(",")[0] for why in said(CASE.format(base=ok, wanted="WANT"))] == [
        "test_h.py::TestIt::test_a"
    ]
    assert len(said(CASE.format(base=other, wanted=28))) >= 1


def test_fixtures_parameters_and_files_of_the_tests_are_followed() -> None:
    conftest = "import pytest, calc\n@pytest.fixture\ndef want():\n    yield {}\n"
    used = "from calc import alpha\ndef test_a(want): assert alpha(7) == want\n"
    assert said(used, **{"conftest.py": conftest.format(28)}) == ()
    assert said(used, **{"conftest.py": conftest.format("calc.WANT")})
    marked = (  # one column is the candidate's
        "import pytest\nfrom calc import alpha, X\n@pytest.mark.parametrize('n, want', [(X, 1), pytest.param({}, 2)])\n"
        "def test_a(n, want): assert alpha(n) == want\n"
    )
    assert said(marked.format(3)) == ()
    assert said(marked.replace("(X, 1)", "(1, X)").format(3))
    near = "from {} import same\nfrom calc import alpha\ndef test_a(): assert same(alpha(7), 28)\n"
    own = {"support/__init__.py": "", "support/near.py": "def same(a, b): return a == b\n"}
    assert said(near.format("support.near"), **own) == ()
    assert said(near.format("support.missing"), **own)  # the candidate may add it


def test_what_cannot_be_read_or_found_is_not_decided() -> None:
    assert "cannot be read" in said("def test_a(:\n")[0]
    made = "from calc import alpha\nglobals()['test_a'] = lambda: None\n"
    assert "made while the tests run" in undecided({"test_h.py": made}, ["calc.py"], ["test_h.py::test_a"])[0]
    endless = "from calc import alpha\n" + "".join(
        f"def f{n}(x): return f{n + 1}(f{n + 1}(f{n + 1}(f{n + 1}(x))))\n" for n in range(12)
    )
    (why,) = said(f"{endless}def test_a(): assert f0(alpha(1)) == 3\n")
    assert "more than" in why
