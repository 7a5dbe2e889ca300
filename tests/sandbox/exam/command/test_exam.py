# ruff: noqa: E501
"""Tasks in other languages: a command and its report, honest and forged, and missing programs."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from fuzz.tasks_on_disk import write_task

from ostinato.sandbox import Backend, Limits
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.types import Grade, Task

SHELL = """
. ./calc.sh
test_one() { [ "$(add 2 3)" = 5 ]; }
test_two() { [ "$(add 2 2)" = 4 ]; }
echo 1..2
for t in one two; do if "test_$t"; then echo "ok - $t"; else echo "not ok - $t"; fi; done
"""
GOOD = {"calc.sh": b"add() { echo $(($1 + $2)); }\n"}
TAP = {"command": 'sh "$TESTS/check.sh"', "report": "tap"}
LIMITS = Limits(wall_s=5)


@pytest.fixture
def here(backend: Backend) -> Backend:
    """Return a backend that can mount directories of this machine."""
    if backend.name == "remote":
        pytest.skip("hidden tests lie here, and another machine cannot mount them")
    return backend


def task(directory: Path, check: dict[str, Any], *ids: str, script: str = SHELL) -> Task:
    repo, tests = {"calc.sh": "add() { echo 4; }\n"}, {"check.sh": script}
    return write_task(directory, repo, tests, ids, metadata={"check": check})


async def test_tap_decides_and_is_marked_forgeable(here: Backend, tmp_path: Path) -> None:
    verifier, checked = Verifier(here, LIMITS), task(tmp_path, TAP, "one", "two")
    good, bad = await verifier.verify(checked, GOOD), await verifier.verify(checked, {})
    assert (good.passed, good.grade, good.void) == (True, Grade.FORGEABLE, None)
    assert (bad.passed, dict(bad.outcomes)) == (False, {"one": "failed", "two": "passed"})


async def test_junit_of_real_pytest(ns_backend: Backend, tmp_path: Path) -> None:
    check = {
        "command": 'python -m pytest -q --junitxml="$REPORT" "$TESTS"',
        "report": "junit",
        "needs": ["python"],
    }
    checked = task(tmp_path, check, "test_x::test_add")
    (tmp_path / "tests/test_x.py").write_text("from calc import add\ndef test_add(): assert add(2, 3) == 5\n")
    found = await Verifier(ns_backend, LIMITS).verify(checked, {"calc.py": b"def add(a, b): return a + b\n"})
    assert found.passed, found


@pytest.mark.skipif(shutil.which("prove") is None, reason="no perl")
async def test_a_program_in_perl(ns_backend: Backend, tmp_path: Path) -> None:
    check = {"command": 'perl "$TESTS/x.t"', "report": "tap", "needs": ["perl"]}
    checked = task(tmp_path, check, "adds")
    (tmp_path / "tests/x.t").write_text(
        "use lib '.'; use Test::More tests => 1; require Calc; is(Calc::add(2, 3), 5, 'adds');\n"
    )
    found = await Verifier(ns_backend, LIMITS).verify(
        checked, {"Calc.pm": b"package Calc; sub add { $_[0] + $_[1] } 1;"}
    )
    assert found.passed, found


async def test_harbors_reward(here: Backend, tmp_path: Path) -> None:
    script = (
        '. ./calc.sh; [ "$(add 2 3)" = 5 ] && echo 1 > "$LOGS/reward.txt" || echo 0 > "$LOGS/reward.txt"\n'
    )
    check = {"command": 'sh "$TESTS/check.sh"', "report": "reward"}
    checked = task(tmp_path, check, "reward", script=script)
    assert (await Verifier(here, LIMITS).verify(checked, GOOD)).passed
    assert not (await Verifier(here, LIMITS).verify(checked, {})).passed


FORGED = {
    "no report": "exit 0",
    "nothing said": "exit 0 > /dev/null",
    "half a report": "echo 1..2; echo ok - one; exit 0",
    "another's tests": "echo 1..3; echo ok - one; echo ok - two; echo ok - three; exit 0",
    "a failure hidden by a namesake": "echo 1..3; echo not ok - one; echo ok - one; echo ok - two; exit 0",
    "a report that ends in failure": "echo 1..2; echo ok - one; echo ok - two; exit 1",
    "a pipe for a report": 'rm "$REPORT"; mkfifo "$REPORT"; exit 0',
    "a folder for a report": 'rm "$REPORT"; mkdir "$REPORT"; exit 0',
    "a link for a report": 'rm "$REPORT"; ln -s /etc/passwd "$REPORT"; exit 0',
    "an endless report": "yes ok - one | head -c 30000000; exit 0",
    "luck": 'echo 1..2; echo ok - one; if [ "$SEED" = 0 ]; then echo ok - two; else echo not ok - two; fi; exit 0',
    "the tests rewritten": 'echo "echo 1..2; echo ok - one; echo ok - two" > "$TESTS/check.sh"; exit 0',
    "never done": "sleep 100",
    "the repository shut": "echo 1..2; echo ok - one; echo not ok - two; chmod 0 .; exit 0",
    "the report shut": 'echo 1..2; chmod 0 "$REPORT"; exit 0',
    "the report's folder shut": 'echo 1..2; chmod 0 "$LOGS"; exit 0',
    "the report's folder a link": 'rm -rf "$LOGS"; ln -s /etc "$LOGS"; exit 0',
    "a report full of holes": 'truncate -s 60000000 "$REPORT"; exit 0',
    "process 1 interrupted": "echo 1..2; kill -INT 1; echo ok - one; exit 0",
    "everybody killed": "kill -9 -1",
    "no room for a report": "head -c 200000000 /dev/zero > /tmp/x; exit 0",
    "no room for a process": "echo 1..2; for i in $(seq 100); do sleep 9 & done; echo ok - one; exit 0",
    "children that write on": "echo 1..2; (while :; do echo ok - one; done) & exit 0",
    "a number too long for a report": "printf '1..%0100000d' 9; exit 0",
    "a name too long for a report": "echo 1..2; head -c 9000000 /dev/zero | tr '\\0' x; exit 0",
}


@pytest.mark.parametrize("forgery", FORGED)
async def test_a_poor_forgery_does_not_pass(ns_backend: Backend, tmp_path: Path, forgery: str) -> None:
    checked = task(tmp_path, TAP, "one", "two")
    found = await Verifier(ns_backend, Limits(wall_s=2)).verify(
        checked, {"calc.sh": FORGED[forgery].encode()}
    )
    assert (found.passed, found.void) == (False, None)


async def test_a_perfect_forgery_passes_and_is_marked(ns_backend: Backend, tmp_path: Path) -> None:
    """A report cannot guarantee more, which is why tests in Python are judged from another process."""
    perfect = b"echo 1..2; echo ok - one; echo ok - two; exit 0"
    found = await Verifier(ns_backend, LIMITS).verify(task(tmp_path, TAP, "one", "two"), {"calc.sh": perfect})
    assert (found.passed, found.grade) == (True, Grade.FORGEABLE)


async def test_a_lucky_pass_is_unstable(ns_backend: Backend, tmp_path: Path) -> None:
    checked = task(tmp_path, TAP, "one", "two")
    found = await Verifier(ns_backend, LIMITS).verify(checked, {"calc.sh": FORGED["luck"].encode()})
    assert dict(found.outcomes) == {"one": "passed", "two": "unstable"}


async def test_a_process_that_stays_cannot_write_later(ns_backend: Backend, tmp_path: Path) -> None:
    late = b'(sleep 0.3; printf "1..2\\nok - one\\nok - two\\n" > "$REPORT") & exit 0'
    found = await Verifier(ns_backend, LIMITS).verify(task(tmp_path, TAP, "one", "two"), {"calc.sh": late})
    assert not found.passed


async def test_a_missing_toolchain_is_void_and_named(ns_backend: Backend, tmp_path: Path) -> None:
    found = await Verifier(ns_backend).verify(
        task(tmp_path, {**TAP, "needs": ["no-such-compiler"]}, "one"), {}
    )
    assert found.void is not None
    assert "no-such-compiler" in found.void


@pytest.mark.parametrize(
    "check", [{}, {"command": "true"}, {"command": "true", "report": "html"}, {"command": 1, "report": "tap"}]
)
async def test_an_invalid_check_is_void(ns_backend: Backend, tmp_path: Path, check: dict[str, Any]) -> None:
    found = await Verifier(ns_backend).verify(task(tmp_path, check, "one"), {})
    assert found.void is not None
    assert "check" in found.void
