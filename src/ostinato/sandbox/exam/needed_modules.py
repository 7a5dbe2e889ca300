"""Which names in hidden tests mean the candidate's modules.

The tests' own files come first, then the modules and packages of the pristine repository, then everything
installed. What nobody else knows is the candidate's if the repository has a folder of modules of that name,
or if the tests cannot do without it: a task may ask for a module that is not there yet. A name that a test
only tries to import is not: a candidate that adds `toolz.py` does not change what the tests do.
"""

import ast
import importlib.machinery
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path

FOLDER = "/"
"""Ends the name of a folder with modules and without `__init__.py`: Python takes it for a package, last."""
_TRIED = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


class Names:
    """Of one exam. `repository`: see `worker.module_names`; `tests`: their directory."""

    def __init__(self, repository: Iterable[str], tests: str) -> None:
        self._tests = tests
        names = frozenset(repository)
        self.first = frozenset(name for name in names if not name.endswith(FOLDER) and not _is_built_in(name))
        """They take precedence over what is installed, as the repository would."""
        self.first -= frozenset(_own(tests))
        self._folders = frozenset(name.removesuffix(FOLDER) for name in names if name.endswith(FOLDER))

    def is_first(self, name: str) -> bool:
        return name in self.first

    def is_last(self, name: str) -> bool:
        return name in self._folders or name in self._needed

    @cached_property
    def _needed(self) -> frozenset[str]:
        """Looked up when nobody knows a name: most tests never come to that."""
        return frozenset(
            name for path in Path(self._tests).rglob("*.py") for name in needed(path.read_text())
        )


def _is_built_in(name: str) -> bool:
    """No file is looked for when such a name is imported."""
    return name in sys.builtin_module_names or importlib.machinery.FrozenImporter.find_spec(name) is not None


def _own(tests: str) -> Iterator[str]:
    with os.scandir(tests) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.name.removesuffix(".py")
            elif entry.is_dir() and any(name.endswith(".py") for name in os.listdir(entry.path)):  # noqa: PTH208
                yield entry.name


def needed(code: str) -> set[str]:
    """The top-level names that a test file imports without another way if they are missing."""
    found: set[str] = set()
    with suppress(SyntaxError, ValueError):  # then it has no tests either
        _collect(ast.parse(code), found)
    return found


def _collect(node: ast.AST, found: set[str]) -> None:
    if isinstance(node, ast.Import):
        found.update(alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        found.add(node.module.partition(".")[0])
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "importlib.import_module":
        found.update(
            str(each.value).partition(".")[0] for each in node.args if isinstance(each, ast.Constant)
        )
    elif isinstance(node, ast.Try) and any(_catches(handler) for handler in node.handlers):
        for each in (*node.orelse, *node.finalbody):
            _collect(each, found)
        return
    for child in ast.iter_child_nodes(node):
        _collect(child, found)


def _catches(handler: ast.ExceptHandler) -> bool:
    """An import that fails."""
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(ast.unparse(kind).rpartition(".")[2] in _TRIED for kind in kinds)
