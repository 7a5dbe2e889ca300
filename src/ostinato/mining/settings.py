"""The settings of a repository that its tests need where nothing of it is installed."""

import configparser
import re
import shlex
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import PurePosixPath

PYTEST_TABLE = re.compile(r"^\[tool\.pytest(\.ini_options)?\]\s*$", re.MULTILINE)
SETTINGS = ("pyproject.toml", "pytest.ini", "tox.ini", "setup.cfg")
TEST_FILE = re.compile(r"(^|/)(test_[^/]*|[^/]*_tests?)\.py$")
INI_TABLES = {
    "pytest.ini": "pytest",
    ".pytest.ini": "pytest",
    "tox.ini": "pytest",
    "setup.cfg": "tool:pytest",
}
ORDER = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
"""The files in which pytest looks for its settings; the first that has some counts alone."""


def with_source_path(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files with pytest told of the folder `src`, where the packages lie there.

    The package is not installed, so `python -m pytest` would test another release of it, or none.
    """
    changed = dict(files)
    if not any(path.startswith("src/") and path.endswith(".py") for path in files):
        return changed
    text = files.get("pyproject.toml", b"").decode(errors="replace")
    found = PYTEST_TABLE.search(text)
    for name, table in INI_TABLES.items():
        ini = files.get(name, b"").decode(errors="replace")
        head = re.search(rf"^\[{re.escape(table)}\]\s*$", ini, re.MULTILINE)
        if head and (name.endswith("pytest.ini") or not found):
            if not re.search(r"^pythonpath\b", ini, re.MULTILINE):
                changed[name] = _after(ini, head, "pythonpath = src")
            return changed
    if found:
        if not re.search(r"^pythonpath\b", text, re.MULTILINE):
            changed["pyproject.toml"] = _after(text, found, 'pythonpath = ["src"]')
    else:
        changed["pytest.ini"] = b"[pytest]\npythonpath = src\n"
    return changed


def pytest_settings(files: Mapping[str, bytes]) -> Mapping[str, tuple[str, ...]]:
    """Return the settings that pytest finds in the root, each as its words; none that cannot be read."""
    for name in ORDER:
        text = files.get(name, b"").decode(errors="replace")
        table = _toml_table(name, text) if name.endswith(".toml") else _ini_table(name, text)
        if table or (name.endswith("pytest.ini") and name in files):
            return {key: _words(value) for key, value in table.items()}
    return {}


def files_of_tests(files: Mapping[str, bytes]) -> tuple[tuple[str, ...], int]:
    """Return the files of the tests, and how many more lie outside of the repository's `testpaths`.

    The settings' `python_files` say which they are; without those, `TEST_FILE`.
    """
    settings = pytest_settings(files)
    patterns, places = settings.get("python_files", ()), settings.get("testpaths", ())
    named = [
        path
        for path in sorted(files)
        if path.endswith(".py")
        and (any(_matches(path, each) for each in patterns) if patterns else TEST_FILE.search(path))
        and not path.endswith("conftest.py")
    ]
    inside = [path for path in named if any(_is_below(path, place) for place in places)]
    return (tuple(inside), len(named) - len(inside)) if inside else (tuple(named), 0)


def _toml_table(name: str, text: str) -> Mapping[str, object]:
    try:
        settings = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}
    if name != "pyproject.toml":
        table = settings.get("pytest")
    else:
        tool = settings.get("tool")
        table = tool.get("pytest") if isinstance(tool, dict) else None
        inner = table.get("ini_options") if isinstance(table, dict) else None
        table = inner if isinstance(inner, dict) else table
    return table if isinstance(table, dict) else {}


def _ini_table(name: str, text: str) -> Mapping[str, object]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    table = INI_TABLES[name]
    return dict(parser[table]) if parser.has_section(table) else {}


def _words(value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(map(str, value))
    try:
        return tuple(shlex.split(str(value), comments=True))
    except ValueError:
        return tuple(str(value).split())


def _matches(path: str, pattern: str) -> bool:
    """Return whether a path has a name of `python_files`, as pytest compares them."""
    return fnmatch(path, f"*{pattern}" if pattern.startswith("/") else f"*/{pattern}") or (
        fnmatch(path, pattern) if "/" in pattern else fnmatch(PurePosixPath(path).name, pattern)
    )


def _is_below(path: str, place: str) -> bool:
    clean = place.removeprefix("./").rstrip("/") or "."
    above = [str(folder) for folder in (PurePosixPath(path), *PurePosixPath(path).parents)]
    return clean == "." or any(fnmatch(folder, clean) for folder in above)


def _after(text: str, head: re.Match[str], line: str) -> bytes:
    end = text.find("\n", head.start()) + 1 or len(text)
    return f"{text[:end]}{line}\n{text[end:]}".encode()
