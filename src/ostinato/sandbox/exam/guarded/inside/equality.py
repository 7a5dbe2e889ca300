"""Comparisons of hidden tests that pass through the watch, which notices a value equal to anything."""

import ast
import builtins
import unittest
from typing import Any

from ostinato.sandbox.exam.guarded.inside.watch import TamperWatch

_NAME = "__guarded_same__"
"""The builtin by which rewritten tests compare."""


def rewrite(module: ast.Module) -> None:
    """Replace each `a == b` in a module by a call of the watch, in place.

    One loop over the nodes takes a quarter of the time that a visitor and a repair of positions take.
    """
    waiting: list[Any] = [module]
    while waiting:
        inside = vars(waiting.pop())
        for name, value in inside.items():
            if type(value) is list:
                value[:] = map(_watched, value)
                waiting.extend(each for each in value if isinstance(each, ast.AST))
            elif isinstance(value, ast.AST):
                inside[name] = _watched(value)
                waiting.append(inside[name])


def _watched(node: Any) -> Any:
    """Return the call that stands for a comparison by `==` alone, every other value as it is."""
    if type(node) is not ast.Compare or len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq):
        return node
    function = ast.copy_location(ast.Name(id=_NAME, ctx=ast.Load()), node)
    return ast.copy_location(ast.Call(func=function, args=[node.left, *node.comparators], keywords=[]), node)


def instrument(watch: TamperWatch) -> None:
    """Let rewritten comparisons, and those of test cases, pass through `watch.same`, before `begin`."""
    assert_equal = unittest.TestCase.assertEqual

    def compared(self: unittest.TestCase, first: Any, second: Any, msg: Any = None) -> None:
        watch.same(first, second)
        assert_equal(self, first, second, msg)

    watch.replace("builtins", builtins, _NAME, watch.same)
    watch.replace("unittest.case.TestCase", unittest.TestCase, "assertEqual", compared)
