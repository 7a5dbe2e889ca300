"""The rules are git's: checked against git itself."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ostinato.tasks.ignored_files import Ignored, is_cache, is_secret

PATHS = [
    *("a", "b.py", "a.log", "d/a", "d/b.py", "d/e/a", "d/e/b.log", "build/x", "d/build/x", "#a", "!a", "a b"),
    *("d/e/f/a.py", "x.pyc", "x[1].py", "*.py", "a-b", "d-e/a", "ab/a", "\\a"),
]
LINES = [
    *(
        "a",
        "/a",
        "a/",
        "d/",
        "/d/",
        "*.py",
        "!b.py",
        "*.log",
        "build",
        "/build/",
        "d/e",
        "d/**",
        "**/e",
        "**/a",
    ),
    *(
        "d/**/a",
        "a**",
        "**",
        "*",
        "!*/",
        "!/d/",
        "d/*",
        "!d/e",
        "\\#a",
        "\\!a",
        "#a",
        "a\\ b",
        "a b ",
        "a b\\ ",
    ),
    *(
        "[ab]",
        "[!ab]*",
        "[a-c]",
        "x[[]1].py",
        "\\*.py",
        "?",
        "??",
        "d?e",
        "*/a",
        "/*",
        "!/a",
        "a/b/",
        "",
        " ",
    ),
    *("[", "[a", "a\\", "[]a]", "[^a]", "d*/a", "\\\\a", "***/a", "d/***", "e/", "[]-a]*", "x[[:digit:]]*"),
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ignored")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for path in PATHS:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x")
    return root


def kept_by_git(root: Path) -> set[str]:
    command = ["git", "-c", "core.excludesFile=", "-C", str(root), "ls-files", "-z", "--others"]
    output = subprocess.run([*command, "--exclude-standard"], check=True, capture_output=True).stdout
    return set(output.decode().split("\0")) & set(PATHS)


@given(st.lists(st.sampled_from(LINES), max_size=6), st.lists(st.sampled_from(LINES), max_size=3))
@example(["*", "!*/", "!*.py"], [])
@example(["d/"], ["!a"])
@example(["\ufeffa", "b.py\r"], [])
@example(["x[[:digit:]]*"], [])
def test_the_same_files_are_left_as_git_leaves(repository: Path, top: list[str], inner: list[str]):
    rules = {".gitignore": "\n".join(top), "d/.gitignore": "\n".join(inner)}
    for path, text in rules.items():
        (repository / path).write_bytes(text.encode())
    ignored = Ignored(rules)
    assert {path for path in PATHS if path not in ignored} == kept_by_git(repository)


@given(st.text(max_size=40), st.text(min_size=1, max_size=20))
def test_any_text_is_rules(text: str, path: str):
    assert (path in Ignored({".gitignore": text})) in {True, False}


@pytest.mark.parametrize(
    "path", [".env", "a/.env.local", "prod.env", "x/id_rsa", "tls/server.KEY", "credentials"]
)
def test_secrets_are_known_by_name(path: str):
    assert is_secret(path)


@pytest.mark.parametrize(
    "path", [".env.example", "environment.py", "keys.py", "secrets.py", "key", "monkey.py"]
)
def test_source_is_no_secret(path: str):
    assert not is_secret(path)


def test_what_tools_fill_is_left_out():
    assert is_cache("a/node_modules/b.js") and is_cache("__pycache__/x.pyc") and not is_cache("cache/x.py")
