"""The runner of suites of `node:test`, in one process of Node."""

import json
import posixpath
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from ostinato.sandbox.base import Exam, Sandbox
from ostinato.sandbox.exam.guarded.inside import start
from ostinato.sandbox.exam.guarded.reports import SuiteReports
from ostinato.sandbox.exam.guarded.runners.base import (
    ScreenedChanges,
    SuitePlan,
    follow,
    hidden_files,
    reaches,
)

_PROGRAM = Path(str(start.__file__)).with_name("under_node.mjs").read_text()
_REPORTER = 'data:text/javascript,export default globalThis[Symbol.for("reporter")]'
_COMMAND = (
    "command -v node >/dev/null || { echo 'no node in the sandbox: install it there'; exit; };"
    " echo 'Node ended at once: it needs a sandbox of 2048 MiB (memory_mb)';"  # read only if it never begins
    " NODE_OPTIONS= NODE_PATH= NODE_V8_COVERAGE= exec node --no-warnings"
    f" --test-reporter='{_REPORTER}' --test-reporter-destination=stdout"
    " --input-type=module - 9>&1 >/dev/null 2>&1"
)
_FAILING = (
    *("equal", "strict_equal", "strictly_equal", "deep_equal", "deep_strict_equal", "truth", "ok", "throws"),
    *("rejects", "required_equal", "required_deep", "required_throws", "exception", "rejected", "fail"),
)
_WORDS = (
    "process.binding",
    "_linkedBinding",
    "process.dlopen",
    "inspector",
    "registerHooks",
    "module.register",
)
"""Words by which code reaches beneath Node's own modules, or into their loading."""
_CODE = (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts")
_CACHES = ("node_modules/.cache/", "node_modules/.package-lock.json", "node_modules/.vite/")
"""Files that tools leave behind by themselves."""


class NodeRunner:
    """A program that loads the test files into one Node, and runs the planned tests by `node:test`."""

    @property
    def planted(self) -> Mapping[str, str]:
        return {"pass": "passed", **dict.fromkeys(_FAILING, "failed"), "skip": "skipped"}

    def screen(self, exam: Exam) -> ScreenedChanges:
        """Leave out packages: a hidden test would load them instead of those that are installed."""
        hidden = hidden_files(exam.tests)
        kept: dict[str, bytes | None] = {}
        signs, notes = [], []
        for path, data in sorted(exam.changes.items()):
            clean = posixpath.normpath(path)
            if clean in hidden:
                continue
            if clean.startswith(_CACHES):
                notes.append(f"{path} was left out: a tool's cache")
            elif "node_modules" in PurePosixPath(clean).parts:
                signs.append(f"{path} would be loaded instead of an installed package")
            else:
                kept[path] = data
                if clean.endswith(_CODE):
                    signs += reaches(path, data, exam.repo / clean, _WORDS)
        return ScreenedChanges(changes=kept, signs=tuple(signs), notes=tuple(notes))

    async def run(self, sandbox: Sandbox, exam: Exam, plan: SuitePlan, reports: SuiteReports) -> None:
        order = {
            "nonce": plan.nonce,
            "root": sandbox.root,
            "order": plan.order,
            "known": [f"{sandbox.root}/{path}" for path in exam.changes],
            "hidden": [f"{sandbox.root}/{path}" for path in hidden_files(exam.tests)],
        }
        program = f"const ORDER = {json.dumps(order)};\n{_PROGRAM}"
        await follow(sandbox, _COMMAND, program.encode(), reports)
