"""The rules for which names in hidden tests mean the candidate's modules.

The tests' own files come first, then the modules and packages of the pristine repository, then all installed
modules. Any other name is the candidate's if the repository has a folder of modules with that name, or if the
tests cannot do without it, because a task may ask for a module that does not exist yet. A name that a test
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
"""Marks a folder with modules but without `__init__.py`, which Python takes for a package last."""
_TRIED = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


class ModuleNames:
    """The names of one exam: `repository` as in `worker.module_names`, and the directory of the tests."""

    def __init__(self, repository: Iterable[str], tests: str) -> None:
        self._tests = tests
        names = frozenset(repository)
        self.first = frozenset(name for name in names if not name.endswith(FOLDER) and not _is_built_in(name))
        """Names that take precedence over installed modules, as the repository's modules would."""
        self.first -= frozenset(_own(tests))
        self._folders = frozenset(name.removesuffix(FOLDER) for name in names if name.endswith(FOLDER))

    def is_first(self, name: str) -> bool:
        return name in self.first

    def is_last(self, name: str) -> bool:
        return name in self._folders or name in self._needed

    @cached_property
    def _needed(self) -> frozenset[str]:
        """The names that tests need. Computed only for an unknown name, which most tests do not have."""
        return frozenset(
            name for path in Path(self._tests).rglob("*.py") for name in needed(path.read_text())
        )


def _is_built_in(name: str) -> bool:
    """Return True for a name that Python imports without a file."""
    return name in sys.builtin_module_names or importlib.machinery.FrozenImporter.find_spec(name) is not None


def _own(tests: str) -> Iterator[str]:
    with os.scandir(tests) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.name.removesuffix(".py")
            elif entry.is_dir() and any(name.endswith(".py") for name in os.listdir(entry.path)):  # noqa: PTH208
                yield entry.name


def needed(code: str) -> set[str]:
    """Return the top-level names that a test file imports without a fallback."""
    names: set[str] = set()
    with suppress(SyntaxError, ValueError):  # such a file has no tests either
        _collect(ast.parse(code), names)
    return names


def _collect(node: ast.AST, names: set[str]) -> None:
    if isinstance(node, ast.Import):
        names.update(alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        names.add(node.module.partition(".")[0])
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "importlib.import_module":
        names.update(
            str(each.value).partition(".")[0] for each in node.args if isinstance(each, ast.Constant)
        )
    elif isinstance(node, ast.Try) and any(_catches(handler) for handler in node.handlers):
        for each in (*node.orelse, *node.finalbody):
            _collect(each, names)
        return
    for child in ast.iter_child_nodes(node):
        _collect(child, names)


def _catches(handler: ast.ExceptHandler) -> bool:
    """Return True if the handler catches a failed import."""
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(ast.unparse(kind).rpartition(".")[2] in _TRIED for kind in kinds)
