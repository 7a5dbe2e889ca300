"""The repository of a task holds nothing of the solution, and has the same commit everywhere.

Covers sandbox/environment/repository.py.
"""

import os
import subprocess
from pathlib import Path

import pytest

from ostinato.sandbox import SandboxError
from ostinato.sandbox.environment.repository import newer_archives, write_repository

LATER = "def alpha(a, b):\n    return a + b  # the answer\n"


def git(repo: Path, *arguments: str) -> str:
    names = {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(
        ["git", *arguments],
        cwd=repo,
        env={**os.environ, **names},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a repository whose later commits, tags, stash, caches and wheels hold the solution."""
    repo = tmp_path / "source"
    repo.mkdir()
    git(repo, "init", "--quiet", "-b", "main")
    (repo / "calc.py").write_text("def alpha(a, b):\n    return a - b\n")
    (repo / "pyproject.toml").write_text('[project]\nname = "My.Calc"\nversion = "1.2"\n')
    (repo / "vendor").mkdir()
    for name in ("my_calc-1.2-py3-none-any.whl", "my_calc-1.10.tar.gz", "other-9.0-py3-none-any.whl"):
        (repo / "vendor" / name).write_text(LATER)
    (repo / "run.sh").write_text("#!/bin/sh\n")
    (repo / "run.sh").chmod(0o755)
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "-m", "one")
    first = git(repo, "rev-parse", "HEAD")
    (repo / "calc.py").write_text(LATER)
    git(repo, "commit", "--quiet", "-am", "two: the answer")
    git(repo, "tag", "v2")
    git(repo, "reset", "--quiet", "--hard", first)
    for name in (
        "__pycache__/calc.cpython-311.pyc",
        ".mypy_cache/3.11/calc.data.json",
        "x/old.pyc",
        "calc.py.orig",
    ):
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(LATER)
    return repo


def test_nothing_of_the_solution_is_left(source: Path, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    commit = write_repository(source, repo)
    holders = [path for path in repo.rglob("*") if path.is_file() and b"answer" in path.read_bytes()]
    assert {path.name for path in holders} == {
        "my_calc-1.2-py3-none-any.whl",
        "other-9.0-py3-none-any.whl",
    }
    assert git(repo, "log", "--all", "--format=%H") == commit
    assert git(repo, "tag") == ""
    assert "dangling" not in git(repo, "fsck", "--lost-found")
    assert git(repo, "status", "--porcelain") == ""
    assert not (repo / ".git/logs").exists()
    objects = git(repo, "cat-file", "--batch-check", "--batch-all-objects").splitlines()
    texts = [git(repo, "cat-file", "-p", line.split()[0]) for line in objects if "blob" in line]
    assert sum("answer" in text for text in texts) == 1  # the two wheels that stay are one object
    assert os.access(repo / "run.sh", os.X_OK)


def test_the_same_files_are_the_same_commit(source: Path, tmp_path: Path) -> None:
    one = write_repository(source, tmp_path / "one")
    assert write_repository(source, tmp_path / "two") == one
    (source / "calc.py").write_text("")
    assert write_repository(source, tmp_path / "three") != one


def test_a_link_out_of_the_repository_is_refused(source: Path, tmp_path: Path) -> None:
    (source / "out").symlink_to("../../etc/passwd")
    with pytest.raises(SandboxError, match="link out"):
        write_repository(source, tmp_path / "repo")
    assert not (tmp_path / "repo").exists()


@pytest.mark.parametrize(
    ("name", "version", "later"),
    [
        ("my-calc", "1.2", False),
        ("My_Calc", "1.2.1", True),
        ("my.calc", "1.10", True),
        ("my_calc", "1.1", False),
    ],
)
def test_only_later_archives_of_the_project_are_removed(
    tmp_path: Path, name: str, version: str, later: bool
) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "my-calc"\nversion = "1.2"\n')
    (tmp_path / f"{name.replace('-', '_')}-{version}-py3-none-any.whl").touch()
    assert bool(newer_archives(tmp_path)) == later
