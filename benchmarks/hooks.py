"""The cost of a hook to the tool that calls it, beside the bare start of Python, and of one look at an edit.

    python -m benchmarks.hooks [--rounds 40] [--json]

Processes start one after another, the hook and the peer in turns, so that a change of load affects both.
Figures are medians in milliseconds, of wall time and of CPU time (which a busy machine stretches less);
`look` is one measurement of one edit in a file of 2,000 lines that was reformatted since.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ostinato.edits.follow.edit import FollowedEdit, proposed
from ostinato.edits.follow.measure import measure
from ostinato.edits.git import WorkTree
from ostinato.edits.install.git_hooks import find, install

HOOK = [sys.executable, "-P", "-m", "ostinato", "hook", "--input", "stdin"]
PEER = [sys.executable, "-c", "pass"]
LINES = 2_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        figures = run(Path(folder), options.rounds)
    print(json.dumps(figures) if options.json else "\n".join(f"{k:<18} {v:8.1f}" for k, v in figures.items()))
    return 0


def run(folder: Path, rounds: int) -> dict[str, float]:
    """Return milliseconds by figure."""
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    install(find(folder), git_hooks=False)
    calls = {"before": event(folder, "PreToolUse"), "after": event(folder, "PostToolUse")}
    (folder / "a.py").write_text("a = 1\n")
    started: dict[str, list[tuple[float, float]]] = {"bare": [], "before": [], "after": []}
    for _ in range(rounds):
        started["bare"].append(start(PEER, b""))
        for name, data in calls.items():
            started[name].append(start(HOOK, data))
    (folder / ".git" / "ostinato" / "enabled").unlink()  # the reporter ends
    wall = {f"{name}_ms": statistics.median(w for w, _ in times) for name, times in started.items()}
    cpu = {f"{name}_cpu_ms": statistics.median(c for _, c in times) for name, times in started.items()}
    return wall | cpu | {"look_ms": look(folder)}


def look(folder: Path) -> float:
    lines = [f"value_{n} = compute('{n}', {n} + {n * 7 % 13})\n" for n in range(LINES)]
    before, after = "".join(lines), "".join([*lines[:900], "x = replaced()\n" * 9, *lines[950:]])
    (folder / "b.py").write_text(after.replace("'", '"').replace(", ", ",\n    "))
    edit = FollowedEdit(
        id="e",
        session_id="s",
        turn=None,
        tool="Edit",
        tool_use_id="",
        root=str(folder),
        path="b.py",
        before=before,
        after=after,
        hunks=proposed(before, after),
        proposed_at=0.0,
        base=None,
        home="",
    )
    return statistics.median(timed(lambda: measure(edit, WorkTree(str(folder)))) for _ in range(5))


def event(folder: Path, name: str) -> bytes:
    payload = {"session_id": "s", "cwd": str(folder), "hook_event_name": name, "tool_name": "Edit"}
    return json.dumps(
        payload | {"tool_use_id": "t", "tool_input": {"file_path": str(folder / "a.py")}}
    ).encode()


def start(command: Sequence[str], data: bytes) -> tuple[float, float]:
    """Return the wall and CPU milliseconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall = timed(lambda: subprocess.run(command, input=data, check=True))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    sys.exit(main())
