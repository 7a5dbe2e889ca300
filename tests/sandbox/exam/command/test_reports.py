"""Reports of other test programs are read as meant, and anything else is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.sandbox.exam.command.reports import ORDER, READERS, ReportError, junit, reward, tap

JUNIT = b"""<?xml version="1.0"?>
<testsuites><testsuite name="s">
<testcase classname="a.B" name="ok"/>
<testcase classname="a.B" name="bad"><failure message="x">text</failure></testcase>
<testcase name="broken"><error/><system-out>x</system-out></testcase>
<testcase classname="" name="left"><skipped/></testcase>
<testcase classname="a.B" name="twice"/><testcase classname="a.B" name="twice"><failure/></testcase>
<testcase classname="a.B" name="twice"/>
</testsuite><failure/></testsuites>"""
TAP = b"""TAP version 14
1..9
ok 1 - first
not ok 2 - second
  ---
  ok: not a test
  ---
    ok 1 - a subtest
    1..1
ok 3 # SKIP no time
not ok 4 - later # TODO write it
ok 5 - better than thought # todo
ok
ok 7 - first
not ok 8 - first
OK 9 with # a sign
# a comment
"""


def test_junit_is_read() -> None:
    assert junit(JUNIT) == {
        "a.B::ok": "passed",
        "a.B::bad": "failed",
        "broken": "error",
        "left": "skipped",
        "a.B::twice": "failed",
    }


def test_tap_is_read() -> None:
    assert tap(TAP) == {
        "first": "failed",
        "second": "failed",
        "3": "skipped",
        "later": "failed",
        "better than thought": "failed",
        "6": "passed",
        "with # a sign": "passed",
    }


@pytest.mark.parametrize(
    ("text", "outcome"), [(b"1\n", "passed"), (b" 1.0", "passed"), (b"0.99", "failed"), (b"nan", "failed")]
)
def test_a_reward_is_read(text: bytes, outcome: str) -> None:
    assert reward(text) == {"reward": outcome}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("junit", b""),
        ("junit", b"<testsuite><testcase name='x'>"),
        ("junit", b"<!DOCTYPE x [<!ENTITY a 'b'>]><testsuite><testcase name='&a;'/></testsuite>"),
        ("junit", b"\xff\xfe"),
        ("junit", b"<?xml version='1.0' encoding='big5'?><testsuite/>"),
        ("junit", b"<?xml version='1.0' encoding='rot13'?><testsuite/>"),
        ("junit", b"<?xml version='1.0' encoding='no such'?><testsuite/>"),
        ("tap", b""),
        ("tap", b"ok 1\n"),
        ("tap", b"1..2\nok 1\n"),
        ("tap", b"1.." + b"9" * 100_000 + b"\nok 1\n"),
        ("tap", b"1..1\nok 1\nok 2\n"),
        ("tap", b"1..1\nok 1\nBail out! no disk\n"),
        ("reward", b""),
        ("reward", b"pass"),
    ],
)
def test_an_invalid_report_is_refused(kind: str, data: bytes) -> None:
    with pytest.raises(ReportError):
        READERS[kind](data)


@given(st.sampled_from(sorted(READERS)), st.binary(max_size=200))
def test_any_bytes_are_a_report_or_refused(kind: str, data: bytes) -> None:
    try:
        found = READERS[kind](data)
    except ReportError:
        return
    assert set(found.values()) <= set(ORDER)
