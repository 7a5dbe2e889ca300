"""Writing of a pebble as a Harbor task directory."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ostinato.tasks.base import load_task
from ostinato.tasks.pebble.base import Pebble
from ostinato.tasks.repository import write_repository
from ostinato.types import Task

TIMEOUT_S, MEMORY_MB = 60.0, 512
DOCKERFILE = """FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends git && pip install 'pytest>=9,<10'
ENV PYTHONDONTWRITEBYTECODE=1
COPY repo /repo
WORKDIR /repo
"""
TEST_SH = """#!/bin/sh
# Runs the hidden tests on the repository and writes the reward, 1 or 0.
tests=$(cd "$(dirname "$0")" && pwd)
cd "${REPO:-/repo}" || exit 1
export PYTHONPATH=.
if python -m pytest -q -c /dev/null --rootdir="$tests" -p no:cacheprovider "$tests/test_hidden.py"
then reward=1; else reward=0; fi
mkdir -p "${LOGS:-/logs/verifier}" && echo "$reward" > "${LOGS:-/logs/verifier}/reward.txt"
"""
SOLVE_HEAD = """#!/bin/sh
# Does what was asked.
set -e
cd "${REPO:-/repo}"
"""


def write(pebble: Pebble, directory: Path) -> Task:
    """Write the task into `directory`, which must not hold one yet; the same pebble makes the same bytes."""
    for folder in ("environment", "tests", "solution"):
        (directory / folder).mkdir(parents=True)
    write_repository(directory / "environment" / "repo", pebble.files)
    for name, text in _texts(pebble).items():
        (directory / name).write_text(text, encoding="utf-8")
    return Task(
        id=pebble.id,
        kind=pebble.kind,
        split=pebble.split,
        key=pebble.key,
        instruction=pebble.instruction,
        directory=directory,
        test_ids=pebble.test_ids,
        protected=pebble.protected,
        timeout_s=TIMEOUT_S,
        memory_mb=MEMORY_MB,
        metadata=_metadata(pebble),
    )


def provide(pebble: Pebble, directory: Path) -> Task:
    """Return the task in `directory`: read it if it exists, else write it, whole or not at all."""
    if directory.exists():
        return load_task(directory)
    part = directory.with_name(f".{directory.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    task = write(pebble, part)
    part.rename(directory)
    return replace(task, directory=directory)


def _texts(pebble: Pebble) -> dict[str, str]:
    return {
        "instruction.md": pebble.instruction + "\n",
        "task.toml": _settings(pebble),
        "environment/Dockerfile": DOCKERFILE,
        "tests/test_hidden.py": pebble.hidden,
        "tests/test.sh": TEST_SH,
        "solution/solve.sh": _solve(pebble),
    }


def _metadata(pebble: Pebble) -> dict[str, object]:
    answer = {} if pebble.answer is None else {"answer": pebble.answer}
    return {**answer, "intent": dict(pebble.intent), "cluster": pebble.cluster, "needs": pebble.needs}


def _settings(pebble: Pebble) -> str:
    """Return task.toml; strings, lists of strings and booleans look alike in JSON and TOML."""
    ours = {
        "id": pebble.id,
        "kind": pebble.kind,
        "split": pebble.split,
        "key": pebble.key,
        "cluster": pebble.cluster,
        "test_ids": pebble.test_ids,
        "protected": pebble.protected,
    }
    answer = {} if pebble.answer is None else {"answer": pebble.answer}
    tables: dict[str, Mapping[str, object]] = {
        "task": {"name": f"pebble/{pebble.id}", "description": f"a {pebble.kind} task in a tiny repository"},
        "agent": {"timeout_sec": 600.0, "network_mode": "no-network"},
        "verifier": {"timeout_sec": TIMEOUT_S},
        "environment": {"cpus": 1, "memory_mb": MEMORY_MB, "allow_internet": False},
        "metadata.ostinato": {**ours, **answer},
        "metadata.ostinato.intent": pebble.intent,
        "metadata.ostinato.needs": {f'"{path}"': lines for path, lines in pebble.needs.items()},
    }
    return 'schema_version = "1.1"\n' + "".join(
        f"\n[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
        for name, table in tables.items()
    )


def _solve(pebble: Pebble) -> str:
    """Return a script with one `sed` per changed line; it answers a question on standard output."""
    files = pebble.files
    places = [files[change.path].splitlines().index(change.old) + 1 for change in pebble.changes]
    steps = [
        f"sed -i '{place}c\\{_of_sed(change.new)}' {change.path}\n"
        for place, change in zip(places, pebble.changes, strict=True)
    ]
    answer = f"echo '{pebble.targets[0].name} uses {pebble.answer}'\n" if pebble.answer is not None else ""
    return SOLVE_HEAD + "".join(steps) + answer


def _of_sed(text: str) -> str:
    """Return text for sed's command `c`, in which a backslash stands before every line's end but the last."""
    return text.replace("\n", "\\\n")
