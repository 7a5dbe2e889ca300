"""Every file, test, module, make target and command that the documentation names exists."""

import argparse
import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ostinato import cli

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "AGENTS.md",
        ROOT / "CHANGELOG.md",
        ROOT / "LOG.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
)
HISTORY = {"CHANGELOG.md", "LOG.md"}
"""Pages that speak of files as they were."""
PATH = re.compile(r"^(?:\./)?([\w.-]+(?:/[\w.*-]+)*/?)(?:::(\w+))?$")
OURS = ("tests/", "benchmarks/", "experiments/", "fuzz/", "docs/", "src/", "lab/", ".ci/")
ROOMS = {path.name for path in (ROOT / "src" / "ostinato").iterdir() if path.is_dir()}
OF_A_TASK = {"tests/test.sh", "tests/test_hidden.py"}
"""Files of a Harbor task, not of this repository."""


def spans(page: Path) -> Iterator[str]:
    """The code of a page: what stands between backticks, and the lines of its blocks."""
    text = page.read_text()
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    blocks += re.findall(r"(?:^ {4}\S.*\n)+", text, re.MULTILINE)
    yield from (line.strip() for block in blocks for line in block.splitlines())
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def paths(page: Path) -> Iterator[tuple[str, str | None]]:
    """Files of ours that are named, with the test in them that is named."""
    for span in spans(page):
        for word in span.split():
            found = PATH.match(word.strip("(),.;:\"'"))
            if found and (
                found[1].startswith(OURS) or (found[1].partition("/")[0] in ROOMS and "/" in found[1])
            ):
                yield found[1].rstrip("."), found[2]


def exists(name: str) -> bool:
    """Return whether a path exists, seen from the root of the repository or from the package."""
    if name in OF_A_TASK:
        return True
    places = (ROOT, ROOT / "src" / "ostinato")
    return any(any(place.glob(name)) or (place / f"{name.rstrip('/')}.py").exists() for place in places)


@cache
def functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if hasattr(node, "name")}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in HISTORY], ids=lambda page: page.name
)
def test_every_file_and_test_that_is_named_exists(page: Path) -> None:
    named = set(paths(page))
    assert not [name for name, _ in named if not exists(name)]
    assert not [(name, test) for name, test in named if test and test not in functions(ROOT / name)]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in HISTORY], ids=lambda page: page.name
)
def test_every_module_and_target_that_is_named_exists(page: Path) -> None:
    text = page.read_text()
    modules = set(re.findall(r"python -m ((?:benchmarks|tests|ostinato)(?:\.\w+)+)", text))
    for module in modules:
        place = (ROOT / "src" if module.startswith("ostinato") else ROOT).joinpath(*module.split("."))
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {span.split()[1] for span in spans(page) if re.fullmatch(r"make [\w-]+( [A-Z]+=.*)?", span)}
    assert named <= targets


def commands(page: Path) -> Iterator[list[str]]:
    """The command lines of `ostinato` that are named, without placeholders and comments."""
    for span in spans(page):
        line = re.sub(r"^(?:\$ |> )?(?:\w+=\S+ )*(?:\.venv/bin/)?", "", span.partition("  #")[0])
        if line.startswith("ostinato ") and not line.startswith("ostinato in "):  # the agent's own greeting
            try:
                yield shlex.split(line)[1:]
            except ValueError:  # a quotation cut by the page: the words before it count
                yield line.split()[1:]


def choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next(
        (
            dict(action.choices)
            for action in parser._actions
            if isinstance(action, argparse._SubParsersAction) and action.choices
        ),
        {},
    )


def unknown(words: list[str]) -> list[str]:
    """The words of a command line that no parser knows: commands that are missing and options."""
    parser, wrong = cli.whole_parser(), []
    for word in words:
        if word in {"|", "&&", ">", "#", "…", "...", "--"}:
            break
        inner = choices(parser)
        if inner and not word.startswith("-"):
            names = word.strip(",.").split("|")
            wrong += [name for name in names if name not in inner and not name.isupper()]
            if names[0] not in inner:
                break
            parser = inner[names[0]]
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", word):
            if option not in parser._option_string_actions:
                wrong.append(option)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_is_named_exists(page: Path) -> None:
    wrong = {" ".join(words): bad for words in commands(page) if (bad := unknown(words))}
    assert not wrong


def test_a_missing_command_would_be_found() -> None:
    assert unknown(["weights", "ls"]) == ["ls"]
    assert unknown(["serve", "--prot"]) == ["--prot"]
    assert unknown(["weights", "list|collect", "OBJECTS", "--json"]) == []
    assert not exists("tests/sandbox/test_base.py") and exists("engine/scripted.py")
