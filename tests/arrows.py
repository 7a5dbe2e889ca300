"""The imports between the files of this repository, read from their text by the standard library alone."""

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {
    "ostinato": ROOT / "src" / "ostinato",
    "ostinato_lab": ROOT / "lab" / "ostinato_lab",
    **{name: ROOT / name for name in ("tests", "fuzz", "benchmarks", "experiments")},
}
"""The top-level packages and their folders."""


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def module(path: Path) -> str:
    """Return the dotted name of a file of one of the packages."""
    package, folder = next(item for item in SOURCES.items() if path.is_relative_to(item[1]))
    name = ".".join((package, *path.relative_to(folder).with_suffix("").parts))
    return name.removesuffix(".__init__")


@cache
def modules() -> dict[str, Path]:
    """Return the file of each module."""
    return {module(path): path for folder in SOURCES.values() for path in sorted(folder.rglob("*.py"))}


@cache
def imported(path: Path) -> frozenset[str]:
    """Return the dotted names that a file imports, at any depth of nesting."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


@cache
def reached(name: str) -> frozenset[str]:
    """Return the modules of ours that a module imports."""
    names = imported(modules()[name])
    return frozenset(
        {n for n in names if n in modules()} | {n.rpartition(".")[0] for n in names} & modules().keys()
    )


@cache
def started(path: Path) -> frozenset[str]:
    """Return the names of ours that stand in a file's strings: modules that it starts as processes."""
    return frozenset(
        name
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in re.findall(r"ostinato(?:\.\w+)+", node.value)
    )


def closure(names: Iterable[str], packages: Iterable[str] = SOURCES) -> set[str]:
    """Return the modules of these packages that can be reached from some by imports, these among them."""
    found, waiting, prefixes = set[str](), set(names), tuple(f"{package}." for package in packages)
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= {other for other in reached(name) if f"{other}.".startswith(prefixes)} - found
    return found
