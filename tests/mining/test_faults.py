"""Faults change one place of one function, and the file still parses.

Covers mining/faults.py and mining/python_source.py.
"""

import ast

import pytest

from ostinato.mining.faults import KINDS, Fault, faults
from ostinato.mining.python_source import PythonSourceError, python_source

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
    return faults("pkg/a.py", python_source(SOURCE.encode()))


def test_every_kind_is_found_and_parses(found: list[Fault]) -> None:
    assert {fault.kind for fault in found} == set(KINDS)
    for fault in found:
        ast.parse(fault.data)
        assert fault.data != SOURCE.encode()


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
    assert any(line in fault.data.decode().splitlines() for fault in found if fault.kind == kind)


def test_a_branch_is_dropped_with_all_its_lines(found: list[Fault]) -> None:
    texts = [fault.data.decode() for fault in found if fault.kind == "dropped branch"]
    assert any("if deep" not in text and "return 0" not in text for text in texts)


def test_a_fault_knows_its_function_as_the_code_object_does(found: list[Fault]) -> None:
    assert {(fault.function, fault.first_line) for fault in found} == {("area", 4), ("Box.é", 15)}


def test_a_body_without_a_docstring_and_a_file_that_is_no_python_are_left_alone() -> None:
    bare = python_source(b"def f():\n    a = 1\n    return a\n")
    assert not [f for f in faults("a.py", bare) if f.kind == "removed body"]
    with pytest.raises(PythonSourceError, match="no Python"):
        faults("a.py", python_source(b"def f(:\n"))


BODY = 'def name(n, high=3):\n    """Doc."""\n    if n > high:\n        return "\u00e9\x0c"\n    return n\n'


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        ("", "utf-8"),
        ("\ufeff", "utf-8"),
        ("# -*- coding: latin-1 -*-\n", "latin-1"),
        ("#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\n", "cp1252"),
        ("# coding: koi8-r\n", "koi8-r"),
        ("# coding: shift_jis\n", "shift_jis"),
        ("# coding: utf-8-sig\n", "utf-8"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_fault_leaves_every_other_byte_as_it_was(head: str, encoding: str, newline: str) -> None:
    letter = {"koi8-r": "\u0436", "shift_jis": "\u3042"}.get(encoding, "\u00e9")
    data = (head + BODY.replace("\u00e9", letter)).replace("\n", newline).encode(encoding)
    found = faults("a.py", python_source(data))
    assert {fault.kind for fault in found} >= {"operator", "wrong default", "dropped branch", "removed body"}
    for fault in found:
        assert ast.dump(ast.parse(fault.data)) != ast.dump(ast.parse(data))
        assert fault.data.startswith(head.replace("\n", newline).encode(encoding))
    (compared,) = [fault.data for fault in found if fault.kind == "operator" and fault.words == ">"]
    assert compared == data.replace(b"n > high", b"n >= high")
    (dropped,) = [fault.data for fault in found if fault.kind == "dropped branch"]
    assert data.endswith(newline.encode()) and dropped.count(b"return") == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"# coding: no-such\n", "not in the encoding that they declare"),
        (b"caf\xe9 = 1\n", "not in the encoding that they declare"),
        (b"\xef\xbb\xbf# coding: latin-1\n", "not in the encoding that they declare"),
        (b"# coding: utf-7\nx = '+AGE-'\n", "does not give their bytes back"),
        (b"#" * (1 << 20) + b"\n", "larger than 1 MiB"),
        (b"x = " + b"(" * 5000 + b")" * 5000, "no Python"),
        (b"x = 1\0", "no Python"),
    ],
)
def test_a_source_that_cannot_be_read_has_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(PythonSourceError, match=reason):
        python_source(data).tree()
