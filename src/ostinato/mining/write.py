"""Writing of a mined task as a Harbor directory, whole or not at all."""

import difflib
import hashlib
import json
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato.mining.base import CONFIGURATION, SourceTree, is_test
from ostinato.mining.options import pytest_arguments
from ostinato.sandbox.backends.environment import COMMAND_ENVIRONMENT
from ostinato.tasks.base import load_task
from ostinato.tasks.repository import write_repository
from ostinato.types import Task

KIND = "mined"
LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")
TIMEOUT_S, MEMORY_MB = 240.0, 2048
"""The time of one run of a hidden suite, and its memory."""
DOCKERFILE = """FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends git && pip install 'pytest>=9,<10'
COPY repo /repo
WORKDIR /repo
"""
TEST_SH = """#!/bin/sh
# Lays the hidden tests over the repository, runs those that count, and writes the reward, 1 or 0.
tests=$(cd "$(dirname "$0")" && pwd)
cd "${REPO:-/repo}" || exit 1
cp -R "$tests/suite/." .
export PYTHONPATH="$PWD:$PWD/src${PYTHONPATH:+:$PYTHONPATH}"
{environment}
unset PYTEST_ADDOPTS PYTEST_PLUGINS
mkdir -p "${LOGS:-/logs/verifier}"
report=$(mktemp)
python -m pytest -q -p no:cacheprovider -o addopts= {arguments}--junitxml="$report" "@$tests/ids.txt"
# Each of the tests has to pass: one that is skipped, or is not there, has not.
python - "$?" "$report" "$tests/ids.txt" <<'END' > "${LOGS:-/logs/verifier}/reward.txt"
import sys
import xml.etree.ElementTree as tree

_, status, report, ids = sys.argv
cases = list(tree.parse(report).iter("testcase")) if status == "0" else []
passed = [case for case in cases if not {part.tag for part in case} & {"skipped", "failure", "error"}]
print(int(len(passed) == len(cases) == sum(1 for line in open(ids, encoding="utf-8"))))
END
rm -f "$report"
"""
SOLVE_SH = """#!/bin/sh
# Applies the reference solution.
set -e
patch=$(cd "$(dirname "$0")" && pwd)/solution.patch
cd "${REPO:-/repo}"
git apply --whitespace=nowarn "$patch"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A task before it is written.

    >>> Draft(tree=SourceTree(name="a", version="1", files={}, licence="MIT"), name="a-1", files={},
    ...       solution={}, suite={}, failing=("t.py::test_a",), passing=(), instruction="fix it",
    ...       evidence={}).test_ids
    ('t.py::test_a',)
    """

    tree: SourceTree
    name: str
    """The end of the id, after the repository's name."""
    files: Mapping[str, bytes]
    """The repository that the agent is given."""
    solution: Mapping[str, bytes | None]
    """The files of the reference solution; None for one that it deletes."""
    suite: Mapping[str, bytes]
    """The hidden test files, by their path in the repository."""
    failing: tuple[str, ...]
    """Tests that fail before and pass after."""
    passing: tuple[str, ...]
    """Tests that pass before and after."""
    instruction: str
    evidence: Mapping[str, Any]

    @property
    def test_ids(self) -> tuple[str, ...]:
        return (*self.failing, *self.passing)

    @property
    def patch(self) -> bytes:
        """The reference solution as a unified diff that git applies, whatever the encoding of its files."""
        return b"".join(
            _diff(path, self.files.get(path, b""), data) for path, data in sorted(self.solution.items())
        )

    @property
    def key(self) -> str:
        """The hash of the repository's name and the solution: the problem itself, not its wording."""
        return hashlib.sha256(f"{self.tree.name}\0".encode() + self.patch).hexdigest()[:16]


def _diff(path: str, before: bytes, after: bytes | None) -> bytes:
    """Return the diff of one file; only a newline ends a line, as for git, and Latin-1 keeps each byte."""
    old, new = (LINE.findall((data or b"").decode("latin-1")) for data in (before, after))
    path = path.encode().decode("latin-1")
    origin = f"a/{path}" if before else "/dev/null"
    mode = "deleted file mode 100644\n" if after is None else "" if before else "new file mode 100644\n"
    head = f"diff --git a/{path} b/{path}\n{mode}"
    target = "/dev/null" if after is None else f"b/{path}"
    lines = list(difflib.unified_diff(old, new, origin, target))
    lines[:2] = [f"{line[:-1]}\t\n" if " " in path else line for line in lines[:2]]  # git reads up to the tab
    text = head + "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
    return text.encode("latin-1")


def write_task(draft: Draft, out: Path) -> Task:
    """Write the task below `out`, under its id; an interrupted writing leaves nothing under that name.

    Raises FileExistsError when there is one already.
    """
    name = f"{draft.tree.name}-{draft.name}-{draft.key[:8]}"
    directory, part = out / name, out / f".{name}.part"
    if directory.exists():
        raise FileExistsError(f"{directory} exists already: give another folder")
    shutil.rmtree(part, ignore_errors=True)
    try:
        _write(draft, name, part)
        load_task(part)
        part.rename(directory)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return load_task(directory)


def _write(draft: Draft, name: str, directory: Path) -> None:
    write_repository(directory / "environment" / "repo", draft.files)
    arguments = pytest_arguments(draft.files)
    texts = {
        "instruction.md": draft.instruction + "\n",
        "task.toml": _settings(draft, name),
        "environment/Dockerfile": DOCKERFILE,
        "tests/test.sh": TEST_SH.replace(
            "{arguments}", "".join(f"{shlex.quote(w)} " for w in arguments)
        ).replace(
            "{environment}",
            "\n".join(f"export {name}={value}" for name, value in COMMAND_ENVIRONMENT.items()),
        ),
        "tests/ids.txt": "".join(f"{test}\n" for test in draft.test_ids),
        "solution/solve.sh": SOLVE_SH,
        "evidence.json": json.dumps(draft.evidence, indent=1, sort_keys=True) + "\n",
    }
    contents = {path: text.encode() for path, text in texts.items()}
    contents["solution/solution.patch"] = draft.patch
    contents |= {f"tests/suite/{path}": data for path, data in draft.suite.items()}
    for path, data in contents.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def _settings(draft: Draft, name: str) -> str:
    """Return task.toml; strings, lists of strings and booleans look alike in JSON and TOML."""
    arguments = list(pytest_arguments(draft.files))
    tests = set(draft.tree.tests)
    protected = sorted(p for p in draft.files if is_test(p) or p in tests or p in CONFIGURATION)
    tables: dict[str, Mapping[str, object]] = {
        "task": {"name": f"mined/{name}", "description": f"a task mined from {draft.tree.name}"},
        "agent": {"timeout_sec": 600.0, "network_mode": "no-network"},
        "verifier": {"timeout_sec": TIMEOUT_S},
        "environment": {"cpus": 1, "memory_mb": MEMORY_MB, "allow_internet": False},
        "metadata.ostinato": {
            "id": name,
            "kind": KIND,
            "split": draft.tree.split,
            "key": draft.key,
            "cluster": draft.tree.name,
            "test_ids": list(draft.test_ids),
            "protected": protected,
        },
        "metadata.ostinato.suite": {"runner": "pytest", **({"arguments": arguments} if arguments else {})},
    }
    return 'schema_version = "1.1"\n' + "".join(
        f"\n[{table}]\n"
        + "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in rows.items())
        for table, rows in tables.items()
    ).replace("\x7f", "\\u007f")
