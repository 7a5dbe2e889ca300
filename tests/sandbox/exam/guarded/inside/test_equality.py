"""Comparisons of tests that pass through the watch: which are rewritten, and where they stand."""

import ast

import pytest

from ostinato.sandbox.exam.guarded.inside import equality

CASES = {
    "f(a == b)": "f(__guarded_same__(a, b))",
    "assert [x == 1 for x in y] == z": "assert __guarded_same__([__guarded_same__(x, 1) for x in y], z)",
    "(a == b) == (c == d)": "__guarded_same__(__guarded_same__(a, b), __guarded_same__(c, d))",
    "{'a': a == b, **c}": "{'a': __guarded_same__(a, b), **c}",
    "a == b == c": "a == b == c",
    "a == b < (c == d)": "a == b < __guarded_same__(c, d)",
    "a != b": "a != b",
    "def f(x=a == b):\n    global g": "def f(x=__guarded_same__(a, b)):\n    global g",
}


@pytest.mark.parametrize(("before", "after"), CASES.items())
def test_each_equality_becomes_a_call(before: str, after: str) -> None:
    module = ast.parse(before)
    equality.rewrite(module)
    assert ast.unparse(module) == after


def test_a_call_stands_where_the_comparison_stood() -> None:
    module = ast.parse("x = 1\nassert (\n    x == 2)\n")
    equality.rewrite(module)
    with pytest.raises(NameError) as caught:
        exec(compile(module, "<test>", "exec"), {})
    assert caught.traceback[-1].lineno + 1 == 3
