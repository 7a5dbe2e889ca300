"""The difference that a session made to a task's repository: its text, and how much of it nobody needed."""

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from ostinato.tasks.ignored_files import GITIGNORE, Ignored, is_cache
from ostinato.types import Task

Changes = Mapping[str, bytes | None]
"""The files that a session changed, by path; None for one that it deleted."""
MOST_CHARACTERS = 20_000
MOST_LINES = 4_000
"""Lines beyond which a file is not compared line by line, since that takes time in their square."""
SLACK = 2
"""The multiple of a reference's lines that is still no more than the task needs."""
TEST = re.compile(r"^test_.*\.py$|_test\.\w+$|\.(?:test|spec)\.\w+$")


def authored(task: Task, changes: Changes) -> Changes:
    """Return the changes without what tools wrote by the way: caches, and new files that git ignores here.

    The `.gitignore` files of the pristine repository decide, so that a session cannot hide what it writes by
    one of its own. A file that the repository had counts whatever its name.
    """
    new = [path for path in changes if not os.path.lexists(task.repo / path)]
    places = {folder / GITIGNORE for path in new for folder in PurePosixPath(path).parents}
    texts = {
        str(place): file.read_text(encoding="utf-8", errors="replace")
        for place in places
        if (file := task.repo / place).is_file() and not file.is_symlink()
    }
    ignored = Ignored(texts)
    left_out = {path for path in new if is_cache(path) or path in ignored}
    return {path: content for path, content in changes.items() if path not in left_out}


def unified(task: Task, changes: Changes) -> str:
    """Return the changes as a unified diff, of at most 20,000 characters."""
    parts: list[str] = []
    changes = authored(task, changes)
    for path in sorted(changes):
        old, new = _sides(task, path, changes[path])
        if max(len(old), len(new)) > MOST_LINES:
            parts.append(f"Files a/{path} and b/{path} differ\n")
            continue
        lines = difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", n=1)
        parts += [line if line.endswith("\n") else line + "\n" for line in lines]
    return "".join(parts)[:MOST_CHARACTERS]


def beyond(task: Task, changes: Changes) -> int | None:
    """Return the changed lines beyond twice those of the reference, file by file; None without a reference.

    A line that is replaced counts once. New files of tests count as needed.
    """
    needed = task.metadata.get("needs")
    if needed is None:
        needed = _of_patches(task)
    if needed is None:
        return None
    return sum(
        max(0, _changed(task, path, content) - SLACK * needed.get(path, 0))
        for path, content in authored(task, changes).items()
        if not _is_new_test(task, path)
    )


def _is_new_test(task: Task, path: str) -> bool:
    return bool(TEST.search(PurePosixPath(path).name)) and not (task.repo / path).exists()


def _changed(task: Task, path: str, content: bytes | None) -> int:
    old, new = _sides(task, path, content)
    if max(len(old), len(new)) > MOST_LINES:
        return max(len(old), len(new))
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    lines = sum(max(i2 - i1, j2 - j1) for kind, i1, i2, j1, j2 in blocks if kind != "equal")
    return max(1, lines)  # a changed mode or an emptied file is a change, too


def _sides(task: Task, path: str, content: bytes | None) -> tuple[list[str], list[str]]:
    before = task.repo / path
    old = before.read_bytes() if before.is_file() and not before.is_symlink() else b""
    return _lines(old), _lines(content or b"")


def _lines(content: bytes) -> list[str]:
    return content.decode("utf-8", errors="replace").splitlines(keepends=True)


def _of_patches(task: Task) -> dict[str, int] | None:
    """Return the lines that the patches of the solution change, by path; None without a patch."""
    needed: dict[str, int] = {}
    for patch in sorted((task.directory / "solution").glob("*.patch")):
        path = before = ""
        removed = added = 0
        for line in [*patch.read_text(encoding="utf-8", errors="replace").splitlines(), "@@"]:
            if line.startswith(("@@", "--- ", "diff ")):
                if path:
                    needed[path] = needed.get(path, 0) + max(removed, added)
                removed = added = 0
                if line.startswith("--- "):
                    before = line.removeprefix("--- ").split("\t")[0].removeprefix("a/")
            elif line.startswith("+++ "):
                after = line.removeprefix("+++ ").split("\t")[0]
                path = before if after == "/dev/null" else after.removeprefix("b/")
            else:
                removed, added = removed + line.startswith("-"), added + line.startswith("+")
    return needed or None
