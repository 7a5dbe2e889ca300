"""The quality of a diff: its size, what it has in common with what a person kept, and what a linter says.

Lines are compared without the space around them, and empty ones do not count.
"""

import ast
import difflib
import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ostinato.tasks.diff import Changes, authored
from ostinato.types import Task

LINT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPatch:
    """The lines that a person kept in the end, of a patch below `solution`.

    >>> KeptPatch(files=frozenset({"a.py"}), size=2, added=Counter({"x = 1": 1})).size
    2
    """

    files: frozenset[str]
    size: int
    """The lines that it adds and removes."""
    added: Counter[str]


def quality(task: Task, changes: Changes) -> dict[str, float]:
    """Return the size of the diff, alone and beside what a person kept, and what a linter says more.

    Caches and ignored files that a run of the tests wrote are none of it.
    """
    changes = authored(task, changes)
    before = {path: original(task.repo, path) for path in changes}
    sizes = [line_changes(before[path], after) for path, after in changes.items()]
    added, removed = sum(more for more, _ in sizes), sum(less for _, less in sizes)
    found = {"files": float(len(changes)), "lines_added": float(added), "lines_removed": float(removed)}
    if (kept := kept_by_person(task.directory)) is not None:
        found |= beside_kept(kept, before, changes, added + removed)
    python = {path for path in changes if path.endswith(".py")}
    if python:
        texts = {path: (before[path] or b"", changes[path] or b"") for path in python}
        found["syntax_errors"] = float(sum(not _parses(after) for _, after in texts.values()))
        findings = [lint(text) for pair in texts.values() for text in pair]
        if all(each is not None for each in findings):
            found["lint_more"] = float(
                sum(each or 0 for each in findings[1::2]) - sum(each or 0 for each in findings[::2])
            )
    return found


def beside_kept(
    kept: KeptPatch, before: Mapping[str, bytes | None], changes: Changes, size: int
) -> dict[str, float]:
    """Return lines and files in units of what a person kept, and the lines that both added.

    `kept_found` is the share of the person's new lines that the diff has too, `survives` the share of the
    diff's new lines that the person's has too: lines that would have outlived their review.
    """
    found: dict[str, float] = {}
    if kept.size > 0:
        found["lines_of_kept"] = size / kept.size
        found["files_beyond_kept"] = float(len(changes.keys() - kept.files))
    ours = Counter(
        line for path, after in changes.items() for line in new_lines(before.get(path), after) if line
    )
    both = (ours & kept.added).total()
    if kept.added:
        found["kept_found"] = both / kept.added.total()
    if ours and kept.added:
        found["survives"] = both / ours.total()
    return found


def line_changes(before: bytes | None, after: bytes | None) -> tuple[int, int]:
    """Return the lines that were added and removed.

    >>> line_changes(b"a\\nb\\n", b"a\\nc\\nd\\n")
    (2, 1)
    """
    old, new = (before or b"").splitlines(), (after or b"").splitlines()
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    changed = [block for block in blocks if block[0] != "equal"]
    return sum(j2 - j1 for *_, j1, j2 in changed), sum(i2 - i1 for _, i1, i2, *_ in changed)


def new_lines(before: bytes | None, after: bytes | None) -> Iterator[str]:
    """Yield the lines that were added, without the space around them.

    >>> list(new_lines(b"a\\nb\\n", b"a\\n  c\\n"))
    ['c']
    """
    old, new = (before or b"").splitlines(), (after or b"").splitlines()
    for kind, _, _, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            yield from (line.decode(errors="replace").strip() for line in new[j1:j2])


def kept_by_person(directory: Path) -> KeptPatch | None:
    """Return what the patches below `solution` keep; None when there is no patch."""
    patches = sorted([*directory.glob("solution/*.patch"), *directory.glob("solution/*.diff")])
    if not patches:
        return None
    lines = [line for path in patches for line in path.read_text(errors="replace").splitlines()]
    heads = [line for line in lines if line.startswith(("+++ ", "--- "))]
    changed = [line for line in lines if line[:1] in {"+", "-"} and line[:4] not in {"+++ ", "--- "}]
    added = Counter(line[1:].strip() for line in changed if line[0] == "+" and line[1:].strip())
    names = {line[4:].partition("\t")[0].partition("/")[2] for line in heads if line[4:] != "/dev/null"}
    return KeptPatch(files=frozenset(names), size=len(changed), added=added)


def lint(source: bytes) -> int | None:
    """Return the number of findings of `ruff` in one Python text; None when it is not installed, or fails."""
    program = shutil.which("ruff")
    if program is None:
        return None
    command = [
        program,
        "check",
        "--isolated",
        "--no-cache",
        "--output-format",
        "json",
        "--stdin-filename",
        "a.py",
        "-",
    ]
    try:
        done = subprocess.run(command, input=source, capture_output=True, timeout=LINT_S, check=False)
        return len(json.loads(done.stdout))
    except (subprocess.TimeoutExpired, ValueError):
        return None


def original(root: Path, path: str) -> bytes | None:
    """Return a file of the pristine repository; None when there is none, or a link leads out of it."""
    whole = root / path
    if not whole.is_file() or not whole.resolve().is_relative_to(root.resolve()):
        return None
    return whole.read_bytes()


def _parses(source: bytes) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
