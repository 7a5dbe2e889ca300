"""Lines of a file that are kept in another form: in the cells of a notebook, or in a patch."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ostinato.edits.git import FileTree

NOTEBOOK = ".ipynb"
PATCHES = (".patch", ".diff")
LETTERS = (".rej", ".mbox", ".eml", ".txt")
"""The names of files that may hold a patch, which their text says."""
HUNK = re.compile(r"^@@ -\d", re.MULTILINE)
HEADS = ("+++ ", "--- ", "@@ ")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnwrappedTree:
    """The files of another tree; a notebook is read as the lines of its cells, a patch as those it leaves.

    >>> from ostinato.edits.git import OneFile
    >>> UnwrappedTree(tree=OneFile(path="a.diff", text="-x = 1\\n+x = 2\\n")).read("a.diff")
    ('x = 2\\n', '')
    """

    tree: FileTree

    def read(self, path: str) -> tuple[str | None, str]:
        text, why = self.tree.read(path)
        return (None if text is None else unwrapped(path, text)), why

    def changed(self, base: str | None) -> list[str]:
        return self.tree.changed(base)

    def renamed(self, base: str | None, path: str) -> str | None:
        return self.tree.renamed(base, path)

    def at(self, base: str | None) -> FileTree:
        return UnwrappedTree(tree=self.tree.at(base))


def is_wrapped(path: str) -> bool:
    return path.endswith((NOTEBOOK, *PATCHES, *LETTERS))


def unwrapped(path: str, text: str) -> str:
    """Return the lines that a file of this name holds; any other file, and what cannot be read, as it is."""
    if path.endswith(PATCHES) or (path.endswith(LETTERS) and HUNK.search(text)):
        kept = (line for line in text.splitlines(keepends=True) if line[:1] in "+ " and line[:4] not in HEADS)
        return "".join(line[1:] for line in kept)
    if not path.endswith(NOTEBOOK):
        return text
    try:
        return "".join(f"{source}\n" for source in _sources(json.loads(text)))
    except (ValueError, RecursionError):
        return text


def _sources(value: Any) -> Iterator[str]:
    """Yield the source of each cell, in notebooks of the versions 3 and 4."""
    if isinstance(value, list):
        for each in value:
            yield from _sources(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name in {"source", "input"} and isinstance(each, str | list):
                yield each if isinstance(each, str) else "".join(map(str, each))
            elif name in {"cells", "worksheets"}:
                yield from _sources(each)
