import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.tasks.repository import write_repository

FILES = {"calc.py": "def alpha(a):\n    return a\n", "test_calc.py": "x = 1\n", "empty": "", "é.txt": "ü\n"}


def git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_git_finds_one_sound_commit_and_a_clean_tree(tmp_path: Path) -> None:
    commit = write_repository(tmp_path, FILES)
    assert git(tmp_path, "fsck", "--strict", "--full") == ""
    assert git(tmp_path, "status", "--porcelain") == ""
    assert git(tmp_path, "log", "--all", "--format=%H %s").split() == [commit, "start"]
    assert git(tmp_path, "rev-list", "--count", "--all").strip() == "1"
    assert git(tmp_path, "ls-files", "-z").split("\0")[:-1] == sorted(FILES)


def test_git_sees_edits_and_can_commit_them(tmp_path: Path) -> None:
    write_repository(tmp_path, FILES)
    (tmp_path / "calc.py").write_text("def alpha(a):\n    return b\n")
    assert git(tmp_path, "status", "--porcelain") == " M calc.py\n"
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "more")
    assert git(tmp_path, "rev-list", "--count", "HEAD").strip() == "2"


def test_the_same_files_make_the_same_bytes(tmp_path: Path) -> None:
    contents = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_repository(tmp_path / name, FILES)
        paths = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        contents.append([(path.relative_to(tmp_path / name), path.read_bytes()) for path in paths])
    assert contents[0] == contents[1]


@given(
    files=st.dictionaries(
        st.text("abcxyz_-.0", min_size=1, max_size=20).filter(
            lambda name: name.strip(".") and ".." not in name
        ),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=60),
        min_size=1,
        max_size=9,
    )
)
def test_any_flat_files_make_a_sound_repository(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, str]
) -> None:
    directory = tmp_path_factory.mktemp("repo")
    write_repository(directory, files)
    assert git(directory, "fsck", "--strict") == ""
    assert git(directory, "status", "--porcelain") == ""


def test_folders_and_bytes_make_a_sound_repository(tmp_path: Path) -> None:
    files = {"a/b.py": "1\n", "a.b": b"\xff\0", "a-b/c/d": "", "a/c/é": "2", "z": "3"}
    write_repository(tmp_path, files)
    assert git(tmp_path, "fsck", "--strict", "--full") == ""
    assert git(tmp_path, "status", "--porcelain") == ""
    assert set(git(tmp_path, "ls-files", "-z").split("\0")[:-1]) == set(files)


@pytest.mark.parametrize("name", ["../a", "/a", "a//b", "a/./b", ".git/config", ".GIT/x", ""])
def test_paths_that_lead_out_and_a_second_repository_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="plain relative paths"):
        write_repository(tmp_path, {name: ""})
    write_repository(tmp_path, FILES)
    with pytest.raises(FileExistsError):
        write_repository(tmp_path, FILES)


def test_a_large_file_is_packed_too(tmp_path: Path) -> None:
    write_repository(tmp_path, {"large.txt": "0123456789abcdef\n" * 40_000})
    assert git(tmp_path, "fsck", "--strict", "--full") == ""
    assert len(git(tmp_path, "show", "HEAD:large.txt")) == 17 * 40_000
