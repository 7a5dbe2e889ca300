"""The runners of Python: pytest, and unittest without pytest.

A file by which a change could steer a suite from outside of the code under test is left out: the pristine one
is used, or none. Those that no honest change needs are signs of tampering as well.
"""

import configparser
import json
import posixpath
import sys
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ostinato.sandbox.base import Exam, Sandbox
from ostinato.sandbox.exam.guarded.inside import planted, start, under_pytest, under_unittest
from ostinato.sandbox.exam.guarded.inside.sources import SOURCES, START
from ostinato.sandbox.exam.guarded.reports import SuiteReports
from ostinato.sandbox.exam.guarded.runners.base import ScreenedChanges, SuitePlan, follow, hidden_files

_TOOLS = {
    *("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "unittest", "sitecustomize", "usercustomize"),
    *("hypothesis", "mock", "xdist", "pytest_asyncio", "attr", "attrs", "ostinato"),
}
"""Modules of the machinery. A change that adds one of these names wants to be imported instead."""
_SITE = {"sitecustomize", "usercustomize"}
_WORDS = (
    *("get_objects", "get_referrers", "get_referents", "_getframe", "_current_frames", "settrace"),
    *("setprofile", "addaudithook", "dlopen", "tb_frame", "gi_frame", "cr_frame", "ag_frame"),
    *("__code__", "/proc"),
)
"""Words of the events that `inside/watch.py` listens to."""
_MEANING = {
    "currentframe": "_getframe",
    "inspect.stack": "_getframe",
    "inspect.trace": "tb_frame",
    "ctypes": "dlopen",
}
"""Words that lead to others."""
_CONFIGURATIONS = {
    **dict.fromkeys(("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"), lambda text: text),
    "tox.ini": lambda text: _ini(text, "pytest"),
    "setup.cfg": lambda text: _ini(text, "tool:pytest"),
    "pyproject.toml": lambda text: str(tomllib.loads(text).get("tool", {}).get("pytest")),
}
"""The part of each configuration file that pytest reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonRunner:
    """A program that runs a suite in one interpreter, warm or new.

    >>> UNITTEST.planted["pass"]
    'passed'
    """

    main: str
    """The module of `sandbox/exam/guarded/inside` that runs the plan."""
    planted: Mapping[str, str]

    def screen(self, exam: Exam) -> ScreenedChanges:
        return screen(exam)

    async def run(self, sandbox: Sandbox, exam: Exam, plan: SuitePlan, reports: SuiteReports) -> None:
        written = {
            "nonce": plan.nonce,
            "root": sandbox.root,
            "order": plan.order,
            "arguments": plan.arguments,
            **watched(exam, sandbox.root),
        }
        await follow(sandbox, start.COMMAND, order_of(self.main, written), reports)


def order_of(main: str, plan: Mapping[str, object]) -> bytes:
    """Return what `start.COMMAND` reads: the programs, the name of the one that runs, and its plan."""
    body = json.dumps({"start": START, "sources": SOURCES, "main": main, "plan": plan}).encode()
    return b"%d\n%s" % (len(body), body)


PYTEST = PythonRunner(main=under_pytest.__name__, planted=planted.KINDS)
UNITTEST = PythonRunner(main=under_unittest.__name__, planted=under_unittest.KINDS)


def screen(exam: Exam) -> ScreenedChanges:
    """Leave out every change that could steer the hidden suite of an exam."""
    hidden = hidden_files(exam.tests)
    above = _folders_above(hidden)
    searched = _searched(exam.repo, hidden, above)
    kept: dict[str, bytes | None] = {}
    signs, notes = [], []
    for path, data in sorted(exam.changes.items()):
        clean = posixpath.normpath(path)
        if clean in hidden or clean.endswith(".pyc") or "__pycache__" in PurePosixPath(clean).parts:
            continue
        if why := _steers(exam, clean, data, above, searched):
            signs.append(f"{path} {why}")
        elif data is not None and _shadows(exam.repo, clean, searched, sys.stdlib_module_names):
            notes.append(f"{path} was left out: it would hide a module of Python's library")
        else:
            kept[path] = data
    return ScreenedChanges(changes=kept, signs=tuple(signs), notes=tuple(notes))


def watched(exam: Exam, root: str) -> dict[str, object]:
    """Return what the detectors in the sandbox need.

    `known` has the changed files and the words that their pristine text had; `hidden` the hidden files.
    """
    known = {}
    for path in exam.changes:
        pristine = exam.repo / path
        text = pristine.read_text(errors="replace") if pristine.is_file() else ""
        words = [word for word in _WORDS if word in text]
        known[f"{root}/{path}"] = words + [meant for word, meant in _MEANING.items() if word in text]
    return {"known": known, "hidden": [f"{root}/{path}" for path in hidden_files(exam.tests)]}


def _folders_above(files: Mapping[str, Path]) -> set[str]:
    """Return every folder above a file of the suite, the repository itself as `.`."""
    return {str(folder) for path in files for folder in PurePosixPath(path).parents} | {".", "src"}


def _searched(repo: Path, hidden: Mapping[str, Path], above: set[str]) -> set[str]:
    """Return the folders in which an import may look: the repository, `src`, tests in no package."""
    packages = {str(PurePosixPath(path).parent) for path in hidden if path.endswith("__init__.py")}
    loose = {each for each in above - packages if not (repo / each / "__init__.py").exists()}
    return loose | {".", "src"}


def _steers(exam: Exam, path: str, data: bytes | None, above: set[str], searched: set[str]) -> str | None:
    """Return why no honest change needs this file, or None."""
    folder, name = posixpath.split(path)
    folder = folder or "."
    if name == "conftest.py" and folder in above:
        return "would be loaded before the suite"
    if name in _CONFIGURATIONS and folder in above and _configured(exam.repo / path, data, name):
        return "changes the configuration of pytest"
    if name.endswith(".pth") or name.partition(".")[0] in _SITE:
        return "would be run by every interpreter"
    if name == "entry_points.txt" and b"pytest" in (data or b""):
        return "registers a plugin of pytest"
    if data is not None and _shadows(exam.repo, path, searched, _TOOLS):
        return "would be imported instead of the test machinery"
    return None


def _configured(pristine: Path, data: bytes | None, name: str) -> bool:
    """Return True if a change alters what pytest reads in a configuration file."""
    read = _CONFIGURATIONS[name]
    before = _settings(pristine.read_bytes() if pristine.is_file() else None, read)
    return before != _settings(data, read)


def _settings(data: bytes | None, read: Callable[[str], str | None]) -> str | None:
    if data is None:
        return None
    try:
        found = read(data.decode())
    except (ValueError, configparser.Error, RecursionError) as error:
        return f"cannot be read: {error}"
    return None if found == "None" else found


def _ini(text: str, section: str) -> str | None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    return str(sorted(parser[section].items())) if section in parser else None


def _shadows(repo: Path, path: str, searched: set[str], names: Collection[str]) -> bool:
    """Return True for a module of one of these names, in a folder that is searched, where there was none."""
    parts = PurePosixPath(path).parts
    for depth, part in enumerate(parts):
        folder = "/".join(parts[:depth]) or "."
        last = depth == len(parts) - 1
        name = part.partition(".")[0] if last and part.endswith((".py", ".so")) else part
        is_module = (last and part != name) or not last
        if folder in searched and is_module and name in names:
            return not (repo / folder / part).exists()
    return False
