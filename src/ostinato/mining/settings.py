"""The settings of a repository that its tests need where nothing of it is installed."""

import configparser
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import PurePosixPath

PYTEST_TABLE = re.compile(r"^\[tool\.pytest(\.ini_options)?\]\s*$", re.MULTILINE)
SETTINGS = ("pyproject.toml", "pytest.ini", "tox.ini", "setup.cfg")
TEST_FILE = re.compile(r"(^|/)(test_[^/]*|[^/]*_tests?)\.py$")
PLUGINS = {"pytest_asyncio.plugin": re.compile(r"^\s*asyncio_mode\b", re.MULTILINE)}
"""The plugins that a sandbox does not load by itself, and the setting by which a repository asks for each."""
STRICT = re.compile(r"^\s*filterwarnings\b[^\n]*(\n\s+[^\n]*)*?\berror\b", re.MULTILINE)
QUIET = ("-W", "ignore::pytest.PytestConfigWarning")
"""Without the plugins that it names, a repository has settings that pytest does not know."""
INI_TABLES = {
    "pytest.ini": "pytest",
    ".pytest.ini": "pytest",
    "tox.ini": "pytest",
    "setup.cfg": "tool:pytest",
}
ORDER = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
"""The files in which pytest looks for its settings; the first that has some counts alone."""
WITH_VALUE = ("-p", "-W", "-m", "-k", "-r", "-c", "-n", "-o")
KEPT = {
    *("-p", "-W", "-m", "-k", "--pythonwarnings", "--import-mode", "--noconftest", "--confcutdir"),
    *("--ignore", "--ignore-glob", "--deselect", "--asyncio-mode"),
}
"""The options of `addopts` on which it rests which tests there are and what they find."""
WITHOUT_EFFECT = {
    *("-q", "--quiet", "-v", "-vv", "--verbose", "-r", "--tb", "--color", "--durations", "-l"),
    *("--no-header", "--no-summary", "--strict-markers", "--strict-config", "--strict", "-x", "--exitfirst"),
    *("--maxfail", "-s", "--capture", "--cache-clear", "--junitxml", "--junit-xml", "--show-capture", "--ff"),
    "--showlocals",
}
"""The options that change what is shown, or how soon a run ends, and no outcome."""
OWN_PLUGINS = {"pytester", "pytest_asyncio", "pytest_asyncio.plugin"}
LENIENT = {"required_plugins": "", "strict": "false", "strict_config": "false", "strict_markers": "false"}
"""The settings that would end a run where plugins are absent, and the values that do not."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PytestOptions:
    """The options that a repository's settings ask for: those that its tests are run with, and the others.

    >>> PytestOptions(kept=("--import-mode=importlib",), left_out=("--cov",)).left_out
    ('--cov',)
    """

    kept: tuple[str, ...]
    left_out: tuple[str, ...]
    """The names of the options that are left out: of plugins that no sandbox has, above all."""


def pytest_arguments(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the arguments that the tests of a repository need where plugins are not loaded by themselves."""
    return pytest_options(files).kept


def pytest_options(files: Mapping[str, bytes]) -> PytestOptions:
    """Return the options of a repository's own settings that its tests need, and those that are left out."""
    settings = pytest_settings(files)
    text = "\n".join(files[name].decode(errors="replace") for name in SETTINGS if name in files)
    kept = [word for name, asks in PLUGINS.items() if asks.search(text) for word in ("-p", name)]
    left_out: list[str] = []
    for name, value in _options(settings.get("addopts", ())):
        if name == "--asyncio-mode" and "pytest_asyncio.plugin" not in kept:
            kept += ["-p", "pytest_asyncio.plugin"]
        if name not in KEPT or (name == "-p" and not _is_here(files, value)):
            left_out += [f"-p {value}" if name == "-p" else name] if name not in WITHOUT_EFFECT else []
        elif (name, value) not in (("-p", "no:cacheprovider"), ("-p", "pytest_asyncio.plugin")):
            kept += [f"{name}={value}"] if name.startswith("--") and value else [name, *filter(None, [value])]
    if _clashes(files) and not any(word.startswith("--import-mode") for word in kept):
        kept.append("--import-mode=importlib")
    kept += [word for name, v in LENIENT.items() if name in settings for word in ("-o", f"{name}={v}")]
    is_strict = STRICT.search(text) or any(word.startswith("error") for word in kept)
    return PytestOptions(kept=(*kept, *(QUIET if is_strict else ())), left_out=tuple(dict.fromkeys(left_out)))


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


def _options(words: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the options among these words, each with its value or an empty one."""
    options: list[tuple[str, str]] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, _, value = word.partition("=")
        if word[:2] in WITH_VALUE and len(word) > 2:
            name, value = word[:2], word[2:]
        elif (word in WITH_VALUE or word in KEPT - {"--noconftest"}) and rest:
            value = rest.pop(0)
        if name.startswith("-"):
            options.append((name, value))
    return options


def _is_here(files: Mapping[str, bytes], plugin: str) -> bool:
    """Return whether a plugin is switched off, pytest's own or a module of the repository."""
    path = plugin.replace(".", "/")
    places = (f"{top}{path}{end}" for top in ("", "src/") for end in (".py", "/__init__.py"))
    return plugin.startswith("no:") or plugin in OWN_PLUGINS or any(place in files for place in places)


def _clashes(files: Mapping[str, bytes]) -> bool:
    """Return whether two test files would be modules of one name, which only `importlib` tells apart."""
    modules: list[PurePosixPath] = []
    for path in map(PurePosixPath, files_of_tests(files)[0]):
        top = path.parent
        while str(top / "__init__.py") in files and top.name:
            top = top.parent
        modules.append(path.relative_to(top))
    return len(set(modules)) < len(modules)


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
