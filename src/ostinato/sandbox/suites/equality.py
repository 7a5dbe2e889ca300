"""Comparisons of hidden tests that pass through the watch, which notices a value equal to anything."""

import ast
import builtins
import unittest
from typing import Any

from ostinato.sandbox.suites.watch import TamperWatch

_NAME = "__guarded_same__"
"""The builtin by which rewritten tests compare."""


class Comparisons(ast.NodeTransformer):
    """Replaces `a == b` by a call of the watch."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq):
            return node
        function = ast.Name(id=_NAME, ctx=ast.Load())
        return ast.copy_location(
            ast.Call(func=function, args=[node.left, *node.comparators], keywords=[]), node
        )


def instrument(watch: TamperWatch) -> None:
    """Let rewritten comparisons, and those of test cases, pass through `watch.same`, before `begin`."""
    assert_equal = unittest.TestCase.assertEqual

    def compared(self: unittest.TestCase, first: Any, second: Any, msg: Any = None) -> None:
        watch.same(first, second)
        assert_equal(self, first, second, msg)

    watch.replace("builtins", builtins, _NAME, watch.same)
    watch.replace("unittest.case.TestCase", unittest.TestCase, "assertEqual", compared)
