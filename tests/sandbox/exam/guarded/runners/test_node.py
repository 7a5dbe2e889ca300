"""A suite of Node's own test runner under guard.

Covers sandbox/exam/guarded/runners/node.py.
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
    pytest.mark.skipif(shutil.which("node") is None, reason="needs node: apt-get install nodejs"),
]
REPO = {"calc.js": "exports.alpha = (a, b) => a - b;\n", "package.json": '{"name": "calc"}\n'}
SUITE = {
    "test/calc.test.js": """
const test = require("node:test");
const { describe, it } = test;
const assert = require("node:assert");
const { alpha } = require("../calc.js");

test("adds", () => assert.equal(alpha(1, 2), 3));
test("adds later", async (t) => {
  await t.test("inside", async () => assert.equal(await alpha(1, 1), 2));
});
describe("group", () => {
  it("of one", () => assert.deepEqual([alpha(1, 1)], [2]));
  it.skip("left out", () => {});
});
test("throws", () => assert.throws(() => alpha(1n, 1), TypeError));
console.log("noise");
""",
    "test/more.test.mjs": """
import test, { beforeEach } from "node:test";
import assert from "node:assert/strict";
import { alpha } from "../calc.js";

let count = 0;
beforeEach(() => (count += alpha(1, 0)));
test("counts", () => assert.equal(count, 1));
""",
}
IDS = (
    "test/calc.test.js::adds",
    "test/calc.test.js::adds later",
    "test/calc.test.js::group::of one",
    "test/calc.test.js::throws",
    "test/more.test.mjs::counts",
)
GOOD = {"calc.js": b"exports.alpha = (a, b) => a + b;\n"}
LIMITS = Limits(wall_s=60, cpu_s=30, memory_mb=2048)


async def test_a_suite_of_node_decides_under_guard(ns_backend: Backend, tmp_path: Path) -> None:
    verifier, task = Verifier(ns_backend, LIMITS), write_suite(tmp_path, REPO, SUITE, IDS, "node")
    good, none = await verifier.verify(task, GOOD), await verifier.verify(task, {})
    assert (good.passed, good.grade, good.void, good.tampered) == (True, Grade.GUARDED, None, ()), good
    assert [none.outcomes[each] for each in IDS] == ["failed", "failed", "failed", "passed", "passed"], none
    assert (none.passed, none.tampered) == (False, ())


async def test_what_is_skipped_or_missing_does_not_pass(ns_backend: Backend, tmp_path: Path) -> None:
    ids = (*IDS, "test/calc.test.js::group::left out", "test/calc.test.js::none such")
    found = await Verifier(ns_backend, LIMITS).verify(write_suite(tmp_path, REPO, SUITE, ids, "node"), GOOD)
    assert (found.passed, found.void, found.tampered) == (False, None, ()), found
    assert [found.outcomes[each] for each in ids[-2:]] == ["skipped", "missing"]


async def test_a_file_that_cannot_be_loaded_is_named(ns_backend: Backend, tmp_path: Path) -> None:
    suite, ids = {**SUITE, "test/b.test.js": "require('./none')\n"}, (*IDS, "test/b.test.js::x")
    task = write_suite(tmp_path, REPO, suite, ids, "node")
    found = await Verifier(ns_backend, LIMITS).verify(task, GOOD)
    assert (found.passed, found.outcomes[ids[-1]], found.outcomes[ids[0]]) == (False, "error", "passed")
    assert "test/b.test.js was not collected" in found.notes[0]


async def test_an_endless_test_fails(ns_backend: Backend, tmp_path: Path) -> None:
    task = write_suite(tmp_path, REPO, SUITE, IDS, "node")
    endless = {"calc.js": b"exports.alpha = () => { for (;;); };\n"}
    found = await Verifier(ns_backend, replace(LIMITS, cpu_s=2)).verify(task, endless)
    assert (found.passed, found.void) == (False, None), found


async def test_a_sandbox_too_small_for_node_is_void_and_says_so(ns_backend: Backend, tmp_path: Path) -> None:
    task = write_suite(tmp_path, REPO, SUITE, IDS, "node")
    found = await Verifier(ns_backend, replace(LIMITS, memory_mb=512)).verify(task, GOOD)
    assert "needs a sandbox of 2048 MiB" in str(found.void)
