"""Faults change one place of one function, and the file still parses."""

import ast

import pytest

from ostinato.mining.faults import KINDS, Fault, faults

SOURCE = '''\
import os


def area(width, height, scale=1, deep=False):
    """Return the area."""
    if width < 0 or height < 0:
        raise ValueError(os.path.join("a", "b"))
    if deep:
        return 0
    total = width * height
    return total * scale


class Box:
    @property
    def é(self):
        return "é" if self.n == 10 else max(self.n, 3)
'''


@pytest.fixture(scope="module")
def found() -> list[Fault]:
    return faults("pkg/a.py", SOURCE)


def test_every_kind_is_found_and_parses(found: list[Fault]) -> None:
    assert {fault.kind for fault in found} == set(KINDS)
    for fault in found:
        ast.parse(fault.text)
        assert fault.text != SOURCE


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("operator", "    if width <= 0 or height < 0:"),
        ("operator", "    if width < 0 and height < 0:"),
        ("operator", '        return "é" if self.n != 10 else max(self.n, 3)'),
        ("off by one", '        return "é" if self.n == 11 else max(self.n, 3)'),
        ("swapped arguments", '        raise ValueError(os.path.join("b", "a"))'),
        ("swapped arguments", '        return "é" if self.n == 10 else max(3, self.n)'),
        ("wrong default", "def area(width, height, scale=2, deep=False):"),
        ("wrong default", "def area(width, height, scale=1, deep=True):"),
        ("removed body", "    raise NotImplementedError"),
    ],
)
def test_a_fault_changes_its_place_alone(found: list[Fault], kind: str, line: str) -> None:
    assert any(line in fault.text.splitlines() for fault in found if fault.kind == kind)


def test_a_branch_is_dropped_with_all_its_lines(found: list[Fault]) -> None:
    texts = [fault.text for fault in found if fault.kind == "dropped branch"]
    assert any("if deep" not in text and "return 0" not in text for text in texts)


def test_a_fault_knows_its_function_as_the_code_object_does(found: list[Fault]) -> None:
    assert {(fault.function, fault.first_line) for fault in found} == {("area", 4), ("Box.é", 15)}


def test_a_body_without_a_docstring_and_a_file_that_is_no_python_are_left_alone() -> None:
    assert not [f for f in faults("a.py", "def f():\n    a = 1\n    return a\n") if f.kind == "removed body"]
    assert faults("a.py", "def f(:\n") == faults("a.py", "def f():\r\n    return 1\r\n") == []
