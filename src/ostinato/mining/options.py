"""The options of a repository's `addopts` with which its tests are run where nothing of it is installed."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from ostinato.mining.python_source import PythonSourceError, python_source
from ostinato.mining.settings import SETTINGS, files_of_tests, pytest_settings

PLUGINS = {"pytest_asyncio.plugin": re.compile(r"^\s*asyncio_mode\b", re.MULTILINE)}
"""The plugins that a sandbox does not load by itself, and the setting by which a repository asks for each."""
STRICT = re.compile(r"^\s*filterwarnings\b[^\n]*(\n\s+[^\n]*)*?\berror\b", re.MULTILINE)
QUIET = ("-W", "ignore::pytest.PytestConfigWarning")
"""Without the plugins that it names, a repository has settings that pytest does not know."""
KEPT: Mapping[str, int] = {
    **dict.fromkeys(("-p", "-W", "--pythonwarnings", "-m", "-k", "-o", "--override-ini", "--import-mode"), 1),
    **dict.fromkeys(("--confcutdir", "--ignore", "--ignore-glob", "--deselect", "--doctest-glob"), 1),
    **dict.fromkeys(("--log-level", "--log-format", "--log-date-format", "--log-auto-indent"), 1),
    **dict.fromkeys(("--log-disable", "--log-cli-level", "--log-file-level", "--asyncio-mode"), 1),
    **dict.fromkeys(("--noconftest", "--runxfail", "--doctest-modules", "--doctest-ignore-import-errors"), 0),
}
"""The options on which it rests which tests there are and what they find, and how many values each has."""
WITHOUT_EFFECT = {
    *("-q", "--quiet", "-v", "--verbose", "--verbosity", "-r", "--report-chars", "--tb", "--xfail-tb"),
    *("-l", "--showlocals", "--no-showlocals", "--full-trace", "--fulltrace", "--color", "--code-highlight"),
    *("--durations", "--durations-min", "--no-header", "--no-summary", "--no-fold-skipped", "--show-capture"),
    *("--force-short-summary", "--disable-warnings", "--disable-pytest-warnings", "--max-warnings"),
    *("--strict-markers", "--strict-config", "--strict", "-x", "--exitfirst", "--maxfail", "-s", "--capture"),
    *("--cache-clear", "--lf", "--last-failed", "--ff", "--failed-first", "--nf", "--new-first", "--lfnf"),
    *("--last-failed-no-failures", "--sw", "--stepwise", "--sw-skip", "--stepwise-skip", "--sw-reset"),
    *("--stepwise-reset", "--setup-show", "--setupshow", "--trace-config", "--traceconfig", "--debug"),
    *("--junitxml", "--junit-xml", "--junit-prefix", "--junitprefix", "--basetemp", "--assert", "--pyargs"),
    *("--keep-duplicates", "--keepduplicates", "--collect-in-virtualenv", "--continue-on-collection-errors"),
    *("--disable-plugin-autoload", "--doctest-report", "--doctest-continue-on-failure", "--log-file"),
    *("--log-file-mode", "--log-file-format", "--log-file-date-format", "--log-cli-format"),
    "--log-cli-date-format",
}
"""The options that change what is shown, how soon a run ends, or what is collected of a folder, and no
outcome of a file. Comparisons of a suite are watched, so assertions are rewritten whatever `--assert` says.
"""
CLUSTER = re.compile(r"-[xvsql]+")
OWN_PLUGINS = {"pytester", "pytest_asyncio", "pytest_asyncio.plugin"}
LENIENT = {"required_plugins": "", "strict": "false", "strict_config": "false", "strict_markers": "false"}
"""The settings that would end a run where plugins are absent, and the values that do not."""
FLAGS = {"store_true", "store_false", "store_const", "append_const", "count", "BooleanOptionalAction"}
MANY = 99
"""The number of values of an option that takes as many as there are."""


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
    words = settings.get("addopts", ())
    text = "\n".join(files[name].decode(errors="replace") for name in SETTINGS if name in files)
    kept = [word for name, asks in PLUGINS.items() if asks.search(text) for word in ("-p", name)]
    left_out, overridden = list[str](), set[str]()
    here = {**KEPT, **_own_options(files, words)}
    for name, values in _options(words, here):
        if name == "--asyncio-mode" and "pytest_asyncio.plugin" not in kept:
            kept += ["-p", "pytest_asyncio.plugin"]
        value = values[0] if values else ""
        if name in ("-o", "--override-ini") and value.partition("=")[0] in LENIENT:
            overridden.add(value.partition("=")[0])
        elif name not in here or (name == "-p" and not _is_here(files, value)):
            left_out += [f"-p {value}" if name == "-p" else name] if name not in WITHOUT_EFFECT else []
        elif (name, value) not in (("-p", "no:cacheprovider"), ("-p", "pytest_asyncio.plugin")):
            kept += [f"{name}={value}"] if name.startswith("--") and len(values) == 1 else [name, *values]
    if _clashes(files) and not any(word.startswith("--import-mode") for word in kept):
        kept.append("--import-mode=importlib")
    lenient = [name for name in LENIENT if name in settings or name in overridden]
    kept += [word for name in lenient for word in ("-o", f"{name}={LENIENT[name]}")]
    is_strict = STRICT.search(text) or any(word.startswith("error") for word in kept)
    return PytestOptions(kept=(*kept, *(QUIET if is_strict else ())), left_out=tuple(dict.fromkeys(left_out)))


def unheld_doctests(files: Mapping[str, bytes]) -> int:
    """Return how many modules have doctests that the repository runs and that no task can hold, since whoever
    solves it may change them with the module.
    """
    options = _options(pytest_settings(files).get("addopts", ()), KEPT)
    if not any(name == "--doctest-modules" for name, _ in options):
        return 0
    tests = set(files_of_tests(files)[0])
    return sum(path.endswith(".py") and path not in tests and b">>> " in data for path, data in files.items())


def _options(words: Iterable[str], here: Mapping[str, int]) -> Iterator[tuple[str, list[str]]]:
    """Yield the options among these words, each with its values; `here` says how many one may have."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("-") or CLUSTER.fullmatch(word):
            continue
        values = [value] if equals else []
        if not word.startswith("--") and len(word) > 2:
            name, values = word[:2], [word[2:]]
        while len(values) < here.get(name, 0) and rest and not (equals or rest[0].startswith("-")):
            values.append(rest.pop(0))
        yield name, values


def _own_options(files: Mapping[str, bytes], words: Iterable[str]) -> dict[str, int]:
    """Return the options that the repository defines itself wherever one of its tests is run, with the number
    of values of each: in a `conftest.py` above all of them, a plugin that `addopts` names, or what those use.
    """
    tests = files_of_tests(files)[0]
    above = list(PurePosixPath(tests[0]).parents) if tests else []
    shared = [each for each in above if all(each in PurePosixPath(test).parents for test in tests)]
    plugins = [values[0] for name, values in _options(words, KEPT) if name == "-p" and values]
    waiting = [str(folder / "conftest.py") for folder in shared] + [p for n in plugins for p in _places(n)]
    read, found = set[str](), dict[str, int]()
    while waiting:
        path = waiting.pop()
        if path not in files or path in read:
            continue
        read.add(path)
        try:
            tree = python_source(files[path]).tree()
        except PythonSourceError:
            continue  # pytest fails on it too, and says so in the survey
        found |= {name: count for node in ast.walk(tree) for name, count in _defined(node)}
        waiting += [place for node in ast.walk(tree) for name in _used(node, path) for place in _places(name)]
    return found


def _defined(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the options that a call of `addoption` defines, with the number of their values."""
    if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") not in {"addoption", "_addoption"}:
        return
    named = {each.arg: each.value for each in node.keywords}
    action, nargs = named.get("action"), named.get("nargs")
    kind = action.value if isinstance(action, ast.Constant) else getattr(action, "attr", "")
    count = 0 if kind in FLAGS else 1
    if isinstance(nargs, ast.Constant):
        count = nargs.value if isinstance(nargs.value, int) else 1 if nargs.value in (None, "?") else MANY
    for each in node.args:
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value.startswith("-"):
            yield each.value, count
            if kind == "BooleanOptionalAction":
                yield each.value.replace("--", "--no-", 1), 0


def _used(node: ast.AST, path: str) -> Iterator[str]:
    """Yield the names of the modules that a statement imports or names as plugins of pytest."""
    if isinstance(node, ast.Import):
        yield from (each.name for each in node.names)
    elif isinstance(node, ast.ImportFrom):
        parents = PurePosixPath(path).parents
        inside = ".".join(parents[min(node.level, len(parents)) - 1].parts) if node.level else ""
        base = ".".join(filter(None, (inside, node.module)))
        yield from (base, *(f"{base}.{each.name}" for each in node.names))
    elif isinstance(node, ast.Assign) and "pytest_plugins" in {
        getattr(each, "id", "") for each in node.targets
    }:
        for each in ast.walk(node.value):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield each.value


def _places(module: str) -> list[str]:
    """Return the files in which a module of the repository may lie."""
    path = module.replace(".", "/")
    return [f"{top}{path}{end}" for top in ("", "src/") for end in (".py", "/__init__.py")]


def _is_here(files: Mapping[str, bytes], plugin: str) -> bool:
    """Return whether a plugin is switched off, pytest's own or a module of the repository."""
    return plugin.startswith("no:") or plugin in OWN_PLUGINS or any(each in files for each in _places(plugin))


def _clashes(files: Mapping[str, bytes]) -> bool:
    """Return whether two test files would be modules of one name, which only `importlib` tells apart."""
    modules: list[PurePosixPath] = []
    for path in map(PurePosixPath, files_of_tests(files)[0]):
        top = path.parent
        while str(top / "__init__.py") in files and top.name:
            top = top.parent
        modules.append(path.relative_to(top))
    return len(set(modules)) < len(modules)
