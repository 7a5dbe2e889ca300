"""Templates hold nothing of the solution, have the same digest everywhere and name what is missing.

Covers sandbox/environment/template.py, sandbox/environment/scrub.py, sandbox/environment/toolchain.py and
sandbox/environment/wheels.py.
"""

import hashlib
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from ostinato.sandbox import Backend, SandboxError
from ostinato.sandbox.environment import build, load, scrub, wheels
from ostinato.sandbox.environment.toolchain import needs

LATER = "def alpha(a, b):\n    return a + b  # the answer\n"


def git(repo: Path, *arguments: str, given: str = "") -> str:
    names = {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(
        ["git", *arguments],
        cwd=repo,
        env={**os.environ, **names},
        input=given,
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
    for commit in (None, "HEAD"):
        template = build(source, tmp_path / "store", commit=commit)
        repo = template.path / "repo"
        holders = [path for path in repo.rglob("*") if path.is_file() and b"answer" in path.read_bytes()]
        assert {path.name for path in holders} == {
            "my_calc-1.2-py3-none-any.whl",
            "other-9.0-py3-none-any.whl",
        }
        assert git(repo, "log", "--all", "--format=%H") == template.commit
        assert git(repo, "tag") == ""
        assert "dangling" not in git(repo, "fsck", "--lost-found")
        assert git(repo, "status", "--porcelain") == ""
        assert not (repo / ".git/logs").exists()
        objects = git(repo, "cat-file", "--batch-check", "--batch-all-objects").splitlines()
        texts = [git(repo, "cat-file", "-p", line.split()[0]) for line in objects if "blob" in line]
        assert sum("answer" in text for text in texts) == 1  # the two wheels that stay are one object
        assert os.access(repo / "run.sh", os.X_OK)


def test_the_same_source_has_the_same_digest(source: Path, tmp_path: Path) -> None:
    one = build(source, tmp_path / "one")
    two = build(source, tmp_path / "two", commit="HEAD")
    assert (one.digest, one.commit) == (two.digest, two.commit)
    assert build(source, tmp_path / "one").path == one.path
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == [one.digest]
    (source / "calc.py").write_text("")
    assert build(source, tmp_path / "one").digest != one.digest


@pytest.mark.parametrize("harm", ["repo/calc.py", "repo/more.py", "template.json", "name"])
def test_a_template_that_was_changed_is_refused(source: Path, tmp_path: Path, harm: str) -> None:
    template = build(source, tmp_path / "store")
    path = template.path
    if harm == "name":
        path = path.rename(path.with_name("0" * 32))
    else:
        (path / harm).write_text("{}")
    with pytest.raises(SandboxError, match=r"again|rebuild"):
        load(path)


def test_a_missing_commit_is_named(source: Path, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="no commit 'nonsense'"):
        build(source, tmp_path / "store", commit="nonsense")
    with pytest.raises(SandboxError, match="no commit"):
        build(source, tmp_path / "store", commit="--output=/tmp/x")
    assert list((tmp_path / "store").iterdir()) == []


def test_a_commit_is_copied_whole_whatever_its_attributes_leave_out(source: Path, tmp_path: Path) -> None:
    (source / ".gitattributes").write_text("tests export-ignore\nabout.py export-subst\n")
    (source / "tests").mkdir()
    (source / "tests/test_all.py").write_text("def test_all(): pass\n")
    (source / "about.py").write_text('COMMIT = "$Format:%H%B$"\n')
    git(source, "add", ".")
    git(source, "commit", "-qm", "attributes")
    scrub.checkout(source, "HEAD", tmp_path / "copy")
    assert (tmp_path / "copy/tests/test_all.py").is_file()
    assert (tmp_path / "copy/about.py").read_text() == 'COMMIT = "$Format:%H%B$"\n'


@pytest.mark.parametrize("most", ["MOST_FILES", "MOST_BYTES"])
def test_a_commit_that_would_fill_the_disk_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: str
) -> None:
    monkeypatch.setattr(scrub, most, 900)
    object = git(source, "hash-object", "-w", "--stdin", given="x" * 5_000).strip()
    kind = "100644 blob"
    for _ in range(3):
        entries = "".join(f"{kind} {object}\t{name}\n" for name in "abcdefghij")
        object, kind = git(source, "mktree", given=entries).strip(), "040000 tree"
    commit = git(source, "commit-tree", object, "-m", "many").strip()
    with pytest.raises(SandboxError, match="has 1000 files of 4 MiB together, and no more"):
        scrub.checkout(source, commit, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_link_out_of_the_repository_is_refused(source: Path, tmp_path: Path) -> None:
    (source / "out").symlink_to("../../etc/passwd")
    with pytest.raises(SandboxError, match="link out"):
        build(source, tmp_path / "store")


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
    assert bool(scrub.newer_archives(tmp_path)) == later


def make_wheel(folder: Path, name: str, code: str, requires: str = "") -> Path:
    """Write a minimal wheel by hand (PEP 427)."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-1.0-py3-none-any.whl"
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(zipfile.ZipInfo(f"{name}.py"), code)
        more = f"Requires-Dist: {requires}\n" if requires else ""
        wheel.writestr(
            zipfile.ZipInfo(f"{about}/METADATA"),
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{more}",
        )
        wheel.writestr(
            zipfile.ZipInfo(f"{about}/WHEEL"),
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(zipfile.ZipInfo(f"{about}/RECORD"), "")
    return path


async def test_dependencies_are_recorded_and_replayed_without_a_network(
    ns_backend: Backend, source: Path, tmp_path: Path
) -> None:
    make_wheel(tmp_path / "index", "helper", "def double(x): return 2 * x\n")
    (tmp_path / "requirements.txt").write_text("helper==1.0\n")
    lock = wheels.record(tmp_path / "requirements.txt", tmp_path / "wheels", find=tmp_path / "index")
    assert list(lock) == ["helper-1.0-py3-none-any.whl"]
    template = build(source, tmp_path / "store", wheelhouse=tmp_path / "wheels")
    assert template.digest == build(source, tmp_path / "other", wheelhouse=tmp_path / "wheels").digest
    assert template.digest != build(source, tmp_path / "store").digest
    sandbox = await ns_backend.create(template.spec())
    assert (await sandbox.exec("python -c 'import helper; print(helper.double(4))'")).output == "8\n"
    assert (await sandbox.exec("echo x > /mnt/deps/x")).exit_code != 0
    await sandbox.destroy()


def test_a_changed_or_missing_wheel_is_refused(tmp_path: Path) -> None:
    path = make_wheel(tmp_path / "wheels", "helper", "x = 1\n")
    lock = {path.name: hashlib.sha256(b"another").hexdigest()}
    with pytest.raises(SandboxError, match="not the wheel that was recorded"):
        wheels.install(lock, tmp_path / "wheels", tmp_path / "target")
    with pytest.raises(SandboxError, match="record the dependencies again"):
        wheels.install({"gone.whl": "0"}, tmp_path / "wheels", tmp_path / "target")


def test_a_requirement_that_pip_cannot_find_is_named(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("nowhere-to-be-found==1.0\n")
    (tmp_path / "index").mkdir()
    with pytest.raises(SandboxError, match="nowhere-to-be-found"):
        wheels.record(tmp_path / "requirements.txt", tmp_path / "wheels", find=tmp_path / "index")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("environment/Dockerfile", "FROM debian:12 AS a\nFROM --platform=x mono:6\n"),
        ("task.toml", '[metadata.ostinato]\nneeds = ["no-such-compiler"]\n'),
    ],
)
def test_a_task_names_missing_programs(source: Path, tmp_path: Path, name: str, text: str) -> None:
    task = tmp_path / "task"
    (task / "environment").mkdir(parents=True)
    source.rename(task / "environment/repo")
    (task / name).write_text(text)
    with pytest.raises(SandboxError, match=r"needs (mono|no-such-compiler)"):
        build(task, tmp_path / "store")
    (task / name).write_text("" if name == "task.toml" else "FROM python:3.11-slim\n")
    assert build(task, tmp_path / "store").needs in ((), ("python3",))


def test_no_program_that_a_repository_names_runs(source: Path, tmp_path: Path) -> None:
    """A clone is only data, but its configuration can name filters, monitors and helpers."""
    ran = tmp_path / "ran"
    (source / ".gitattributes").write_text("*.py filter=own diff=own\n")
    git(source, "add", "--all")
    git(source, "commit", "--quiet", "-m", "attributes")
    for name in ("filter.own.smudge", "filter.own.clean", "core.fsmonitor", "tar.tar.command"):
        git(source, "config", name, f"touch {ran}; cat")
    git(source, "config", "filter.own.required", "true")
    git(source, "config", "extensions.partialClone", "origin")
    git(source, "config", "remote.origin.url", f"ext::sh -c touch% {ran}")
    git(source, "config", "protocol.ext.allow", "always")
    template = build(source, tmp_path / "store", commit="HEAD")
    assert (template.path / "repo/calc.py").read_text() == "def alpha(a, b):\n    return a - b\n"
    with pytest.raises(SandboxError, match="no commit"):
        build(source, tmp_path / "store", commit="1" * 40)
    build(source, tmp_path / "store")
    assert not ran.exists()


def test_a_commit_is_found_by_every_usual_name(source: Path, tmp_path: Path) -> None:
    whole = git(source, "rev-parse", "v2")
    git(source, "pack-refs", "--all")
    git(source, "worktree", "add", "--quiet", "--detach", str(tmp_path / "tree"), "v2")
    git(source, "clone", "--quiet", "--bare", ".", str(tmp_path / "bare"))
    places = [(source, name) for name in ("v2", whole, whole[:10], "refs/tags/v2")]
    places += [(tmp_path / "tree", "HEAD"), (tmp_path / "bare", "v2")]
    digests = {build(*place[:1], tmp_path / "store", commit=place[1]).digest for place in places}
    assert len(digests) == 1


def evil(folder: Path, ran: Path) -> Path:
    """Write a source tree whose code runs when it is built or asked for its metadata."""
    folder.mkdir()
    (folder / "setup.py").write_text(f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n")
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n'
    )
    (folder / "own.py").write_text((folder / "setup.py").read_text())
    return folder


@pytest.mark.parametrize(
    "line",
    [
        "pkg @ file://{evil}",
        "pkg@file://{evil}",
        "{evil}",
        "./evil",
        "evil.tar.gz",
        "evil.zip[all]",
        "file://{evil}",
        "-e {evil}",
        "--editable={evil}",
        "git+file://{evil}",
        "pkg @ git+file://{evil}",
        "-r other.txt",
        "--requirement other.txt",
        "-c other.txt",
        "--index-url http://127.0.0.1:9/simple",
        "--extra-index-url http://127.0.0.1:9/simple",
        "--find-links {evil}",
        "--no-binary :all:",
        "helper --global-option=x",
        "helper --config-settings=x=y",
        "${{EVIL}}",
        "helper ; python_version > '3' @ file://{evil}",
        "hel\\\nper @ file://{evil}",
        "helper\x0c-e {evil}",
        "ｈelper",
    ],
)
def test_a_line_that_could_run_something_is_refused(tmp_path: Path, line: str) -> None:
    ran = tmp_path / "ran"
    text = line.format(evil=evil(tmp_path / "evil", ran))
    (tmp_path / "requirements.txt").write_text(text + "\n", encoding="utf-8")
    with pytest.raises(SandboxError, match="is refused"):
        wheels.record(tmp_path / "requirements.txt", tmp_path / "wheels", find=tmp_path)
    assert not ran.exists()


@pytest.mark.parametrize(
    "line",
    [
        "helper",
        "helper==1.0  # why",
        "helper [fast, slow] >= 1.0, < 2 ; python_version >= '3.8' and sys_platform == \"linux\"",
        "helper (>=1.0)",
        "helper==1.0 \\\n    --hash=sha256:" + "0" * 64,
        "a_b.c-d ~= 2024.1",
        "helper==1.*",
        "helper===1.0+local",
    ],
)
def test_a_plain_requirement_is_accepted(tmp_path: Path, line: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"# all\n\n{line}\n")
    (found,) = wheels.parsed(tmp_path / "requirements.txt")
    assert found.startswith(("helper", "a_b.c-d"))
    assert "#" not in found


@pytest.mark.parametrize("form", ["a source archive", "a wheel that requires a source tree"])
def test_nothing_is_built_from_any_form_of_source(tmp_path: Path, form: str) -> None:
    ran, index = tmp_path / "ran", tmp_path / "index"
    index.mkdir()
    folder = evil(tmp_path / "other-1.0", ran)
    if form == "a source archive":
        subprocess.run(
            ["tar", "-czf", str(index / "other-1.0.tar.gz"), "other-1.0"], cwd=tmp_path, check=True
        )
    else:
        make_wheel(index, "other", "", requires=f"third @ file://{folder}")
    (tmp_path / "requirements.txt").write_text("other==1.0\n")
    with pytest.raises(SandboxError, match="pip download failed"):
        wheels.record(tmp_path / "requirements.txt", tmp_path / "wheels", find=index)
    assert not ran.exists()


@pytest.mark.parametrize(
    "image",
    [
        "python",
        "python:3.12-slim",
        "python@sha256:0f",
        "python:3.12@sha256:0f",
        "localhost:5000/python",
        "host:5000/a/python:3",
    ],
)
def test_the_program_of_a_base_image_is_found_whatever_tag_digest_or_registry_it_names(
    tmp_path: Path, image: str
) -> None:
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment" / "Dockerfile").write_text(f"FROM {image}\n")
    assert needs(tmp_path) == ("python3",)
