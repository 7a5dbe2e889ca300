"""A suite of Go under guard.

Covers sandbox/exam/guarded/runners/go.py.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from fuzz.tasks_on_disk import write_suite

from ostinato.sandbox import Backend, Limits
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.types import Grade

pytestmark = [
    pytest.mark.toolchains,
    pytest.mark.skipif(shutil.which("go") is None, reason="needs go: apt-get install golang-go"),
]
BAD = "package calc\n\nfunc Alpha(a, b int) int { return a - b }\n"
REPO = {"go.mod": "module calc\n\ngo 1.19\n", "calc.go": BAD, "calc_test.go": "package calc\n"}
SUITE = {
    "calc_test.go": """package calc

import (
	"fmt"
	"testing"
)

func TestAlpha(t *testing.T) {
	fmt.Println("noise")
	if got := Alpha(1, 2); got != 3 {
		t.Errorf("got %d", got)
	}
}

func TestParallel(t *testing.T) {
	t.Parallel()
	t.Run("inside", func(t *testing.T) {
		if Alpha(1, 1) != 2 {
			t.Fatal("off")
		}
	})
}

func TestZero(t *testing.T) {
	if Alpha(1, 0) != 1 {
		t.Error("off")
	}
}

func TestSkipped(t *testing.T) { t.Skip("not here") }
""",
    "outside_test.go": """package calc_test

import (
	"calc"
	"testing"
)

func TestOutside(t *testing.T) {
	if calc.Alpha(2, 2) != 4 {
		t.Error("off")
	}
}
""",
}
IDS = (
    *(f"calc_test.go::{name}" for name in ("TestAlpha", "TestParallel", "TestZero")),
    "outside_test.go::TestOutside",
)
GOOD = {"calc.go": BAD.replace("a - b", "a + b").encode()}
LIMITS = Limits(wall_s=120, cpu_s=60, memory_mb=4096, disk_mb=512, processes=256)


@pytest.mark.slow
async def test_a_suite_of_go_decides_under_guard(ns_backend: Backend, tmp_path: Path) -> None:
    verifier, task = Verifier(ns_backend, LIMITS), write_suite(tmp_path, REPO, SUITE, IDS, "go")
    good = await verifier.verify(task, GOOD)
    assert (good.passed, good.grade, good.void, good.tampered) == (True, Grade.GUARDED, None, ()), good
    ids = (*IDS, "calc_test.go::TestSkipped", "calc_test.go::TestNone")
    none = await verifier.verify(replace(task, test_ids=ids), {})
    expected = ["failed", "failed", "passed", "failed", "skipped", "missing"]
    assert [none.outcomes[each] for each in ids] == expected, none
    assert (none.passed, none.tampered) == (False, ())


@pytest.mark.slow
async def test_code_that_does_not_compile_fails_and_is_named(ns_backend: Backend, tmp_path: Path) -> None:
    task = write_suite(tmp_path, REPO, SUITE, IDS, "go")
    found = await Verifier(ns_backend, LIMITS).verify(task, {"calc.go": b"package calc\nfunc Alpha(\n"})
    assert (found.passed, found.void) == (False, None), found
    assert "./calc.go:3:1: syntax error" in found.notes[0]


async def test_a_sandbox_in_which_go_does_not_start_is_void(ns_backend: Backend, tmp_path: Path) -> None:
    task = write_suite(tmp_path, REPO, SUITE, IDS, "go")
    found = await Verifier(ns_backend, replace(LIMITS, memory_mb=256)).verify(task, GOOD)
    assert "memory_mb = 1024" in str(found.void), found
