"""The memory of the machinery: which names it holds, and what a change of them reports.

The attacks of tests/hacks cover sandbox/exam/guarded/inside/parts.py.
"""

import json
import unittest
from typing import Any

import pytest

from ostinato.sandbox.exam.guarded.inside.watch import Memory, TamperWatch


@pytest.fixture
def reports() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def watch(reports: list[dict[str, Any]]) -> TamperWatch:
    watch = TamperWatch({}, (), reports.append, Memory())
    watch.begin()
    return watch


def test_a_function_of_the_library_that_was_changed_is_reported(
    watch: TamperWatch, reports: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as changed:
        changed.setattr(json, "dumps", lambda *_: "")
        changed.setattr(unittest.TestCase, "assertTrue", lambda *_: None)
        watch.check()
    assert {report["sign"] for report in reports} == {
        "json.dumps was changed",
        "unittest.case.TestCase.assertTrue was changed",
    }


def test_a_function_that_is_gone_is_reported(
    watch: TamperWatch, reports: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as changed:
        changed.delattr(json, "dumps")
        watch.check()
    assert [report["sign"] for report in reports] == ["json.dumps was changed"]


def test_what_cannot_be_called_and_what_is_new_is_no_sign(
    watch: TamperWatch, reports: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as changed:
        changed.setattr(json, "__all__", [])
        changed.setattr(json, "new", print, raising=False)
        watch.check()
    assert reports == []


def test_our_own_function_has_to_stay(
    watch: TamperWatch, reports: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as changed:
        changed.setattr(json, "loads", json.loads)
        own = TamperWatch({}, (), reports.append, Memory())
        own.replace("json", json, "loads", lambda *_: 1)
        own.begin()
        own.check()
        assert reports == []
        json.loads = lambda *_: 2
        own.check()
    assert [report["sign"] for report in reports] == ["json.loads was changed"]
