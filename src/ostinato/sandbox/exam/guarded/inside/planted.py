"""The planted tests: their outcome is known before they run, and each bears the id of a real test.

A program that makes every test pass, in whatever way, makes these pass as well; one that makes every test
fail is found by the one that must pass.
"""

KINDS = {
    "pass": "passed",
    "equal": "failed",
    "truth": "failed",
    "contained": "failed",
    "identical": "failed",
    "raises": "failed",
    "approx": "failed",
    "fail": "failed",
    "exception": "failed",
    "case_equal": "failed",
    "case_true": "failed",
    "case_raises": "failed",
    "skip": "skipped",
}
"""The name of each planted test in `SOURCE`, and its outcome under an honest runner."""
SOURCE = """
import unittest
import pytest

def pass_():
    assert [1, 2] == [1, 2]
    assert 0.1 + 0.2 == pytest.approx(0.3)
    with pytest.raises(KeyError):
        {}["a"]
    unittest.TestCase().assertEqual("a", "a")

def equal():
    left, right = {"a": [1, 2]}, {"a": [1, 3]}
    assert left == right

def truth():
    values = []
    assert values

def contained():
    assert 3 in (1, 2)

def identical():
    assert isinstance("1", int)

def raises():
    with pytest.raises(ValueError):
        int("1")

def approx():
    assert 1.0 == pytest.approx(1.1)

def fail():
    pytest.fail("planted")

def exception():
    [][0]

def case_equal():
    unittest.TestCase().assertEqual(1, 2)

def case_true():
    unittest.TestCase().assertTrue(0)

def case_raises():
    with unittest.TestCase().assertRaises(ValueError):
        int("1")

def skip():
    pytest.skip("planted")
"""
"""The planted tests, as the body of a test file. `pass` is a keyword, so its function is named `pass_`."""


def function_name(kind: str) -> str:
    """Return the name of the function of a planted test.

    >>> function_name("pass"), function_name("equal")
    ('pass_', 'equal')
    """
    return "pass_" if kind == "pass" else kind
