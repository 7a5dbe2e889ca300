"""Reports of a suite: what a wrong signature, a repeated outcome and a planted test give away."""

import hmac
import json
from typing import Any

import pytest

from ostinato.sandbox import SandboxError
from ostinato.sandbox.exam.guarded.reports import MAX_BYTES, UNFINISHED, SuiteReports

NONCE = "ab" * 32
ORDER = [("t.py::a", ""), ("t.py::a", "equal"), ("t.py::b", "pass"), ("t.py::b", "")]
PLANTED = {"equal": "failed", "pass": "passed"}
HONEST = [
    {"begun": True},
    {"at": 0, "outcome": "passed"},
    {"at": 1, "outcome": "failed"},
    {"at": 2, "outcome": "passed"},
    {"at": 3, "outcome": "passed"},
    {"done": True},
]


def lines(*reports: dict[str, Any], nonce: str = NONCE, first: int = 0) -> bytes:
    made = b""
    for number, report in enumerate(reports, first):
        body = json.dumps(report).encode()
        signature = hmac.new(bytes.fromhex(nonce), b"%d %s" % (number, body), "sha256").hexdigest()
        made += f"{signature} ".encode() + body + b"\n"
    return made


def read(data: bytes) -> SuiteReports:
    reports = SuiteReports(NONCE, ORDER, PLANTED)
    for at in range(0, len(data), 7):
        reports.feed(data[at : at + 7])
    return reports


def test_an_honest_run_leaves_no_sign() -> None:
    reports = read(lines(*HONEST))
    assert reports.finish() == {"t.py::a": "passed", "t.py::b": "passed"}
    assert (reports.done, reports.signs) == (True, [])


SIGNS = {
    "a planted test that passes": (lines(*HONEST[:2], {"at": 1, "outcome": "passed"}), "(equal) passed"),
    "a planted test that is left out": (lines(*HONEST[:2], *HONEST[3:]), "(equal) did not run"),
    "another nonce": (lines(HONEST[0]) + lines(*HONEST[1:], nonce="cd" * 32, first=1), "right signature"),
    "a line repeated": (lines(*HONEST[:2]) + lines(HONEST[1], first=1), "right signature"),
    "an outcome twice": (lines(*HONEST[:5], HONEST[4], HONEST[5]), "came twice"),
    "a place that is not planned": (lines(HONEST[0], {"at": 9, "outcome": "passed"}), "not planned"),
    "a report of another form": (lines(HONEST[0], {"all": "passed"}), "never sends"),
}


@pytest.mark.parametrize("name", SIGNS)
def test_what_an_honest_run_does_not_send_is_a_sign(name: str) -> None:
    data, sign = SIGNS[name]
    reports = read(data)
    reports.finish()
    assert any(sign in each for each in reports.signs), reports.signs


def test_more_than_any_suite_reports_is_a_sign() -> None:
    reports = SuiteReports(NONCE, ORDER, PLANTED)
    reports.feed(b"x" * (MAX_BYTES + 1))
    assert reports.signs == ["the suite reported more than its tests could"]


def test_a_run_that_is_not_done_is_unfinished() -> None:
    assert read(lines(*HONEST[:-1])).finish()[UNFINISHED] == "error"


def test_a_runner_that_never_began_is_our_failure() -> None:
    with pytest.raises(SandboxError, match="did not start: sh: python: not found"):
        read(b"sh: python: not found\n").finish()
    with pytest.raises(SandboxError, match="install it"):
        read(lines({"void": "no pytest: install it"}))
