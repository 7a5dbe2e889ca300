"""Images: from files to the root of a sandbox, and what hostile ones can do.

Covers sandbox/files/image_root.py, sandbox/environment/images.py, sandbox/environment/dockerfile.py,
sandbox/exam/task_needs.py, sandbox/environment/tools.py and sandbox/environment/commands.py.
"""

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.cli import main
from ostinato.sandbox import Backend, SandboxError, Spec, Unsupported
from ostinato.sandbox.base import Image
from ostinato.sandbox.environment import commands, dockerfile, images
from ostinato.sandbox.exam.task_needs import image_of
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.tasks.base import TaskError, load_task
from ostinato.types import Grade

PROGRAMS = ("sh", "cat", "ls", "id", "touch", "env", "mkdir", "ln", "cp")


def tool(name: str):
    missing = shutil.which(name) is None
    return pytest.mark.skipif(missing, reason=f"{name} is not installed: make test-sandboxes installs it")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system: a shell and some programs of this machine, with their libraries."""
    root = tmp_path_factory.mktemp("image") / "root"
    for name in PROGRAMS:
        program = os.path.realpath(shutil.which(name) or "")
        linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        words = [word for line in linked.splitlines() for word in line.split() if word.startswith("/")]
        for source, target in ((program, f"/bin/{name}"), *((word, word) for word in words)):
            place = root / target[1:]
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)
            place.chmod(0o755)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/os-release").write_text("ID=tiny\n")
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (root / "app").mkdir()
    (root / "app/main.txt").write_text("of the image\n")
    return root


@pytest.fixture(scope="module")
def archive(files: Path) -> Path:
    path = files.parent / "root.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(files, ".")
    return path


def layout(directory: Path, *layers: bytes, config: dict[str, object] | None = None) -> Path:
    """An OCI layout of gzipped layers."""
    blobs = directory / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(data: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        media = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)}

    unpacked = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    about = {"architecture": "amd64", "os": "linux", "config": config or {}}
    about["rootfs"] = {"type": "layers", "diff_ids": unpacked}
    manifest = {
        "schemaVersion": 2,
        "config": put(json.dumps(about).encode(), "config.v1+json"),
        "layers": [put(gzip.compress(layer), "layer.v1.tar+gzip") for layer in layers],
    }
    entry = put(json.dumps(manifest).encode(), "manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": "x"}
    (directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return directory


def member(name: str, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def tar_of(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w") as tar:
        for each in members:
            tar.addfile(each, io.BytesIO(bytes(each.size)))
    return path


async def test_commands_run_in_the_image_and_nothing_of_it_is_written(
    backend: Backend, repo: Path, files: Path
) -> None:
    image = Image(root=files, workdir="/app", environment={"FROM_IMAGE": "yes", "BOTH": "image"})
    spec = Spec(repo=repo, image=image, environment={"BOTH": "spec"})
    try:
        sandbox = await backend.create(spec)
    except Unsupported as error:
        pytest.skip(str(error))
    result = await sandbox.exec("cat /etc/os-release; env; cat /app/sub/note.txt; ls /usr/bin /.host /home")
    assert result.output.startswith("ID=tiny\n") and "hello\n" in result.output
    assert "FROM_IMAGE=yes" in result.output and "BOTH=spec" in result.output
    assert "python" not in result.output
    written = await sandbox.exec("touch /bin/new /app/from-app && echo x > /etc/os-release && ls /bin/new")
    assert written.exit_code == 0, written.output
    assert await sandbox.changes() == {"from-app": b""}
    await sandbox.destroy()
    assert not (files / "bin/new").exists() and not (files / "app/from-app").exists()
    assert (files / "etc/os-release").read_text() == "ID=tiny\n"
    fresh = await backend.create(spec)
    assert (await fresh.exec("ls /bin/new")).exit_code != 0
    await fresh.destroy()


async def test_links_of_a_hostile_image_are_replaced_not_followed(
    backend: Backend, repo: Path, files: Path, tmp_path: Path
) -> None:
    """Links where the sandbox mounts or writes something, to places of the machine."""
    hostile, outside = tmp_path / "hostile", tmp_path / "outside"
    shutil.copytree(files, hostile, symlinks=True)
    outside.mkdir()
    (outside / "hosts").write_text("of the machine\n")
    for name in ("tmp", "mnt", "run", "repo", "proc", "dev", ".host", ".scratch"):
        shutil.rmtree(hostile / name, ignore_errors=True)
        (hostile / name).symlink_to(f"/.host{outside}" if name != "tmp" else outside)
    (hostile / "etc/hosts").symlink_to(f"/.host{outside}/hosts")
    try:
        sandbox = await backend.create(Spec(repo=repo, image=Image(root=hostile, workdir="/srv/deep")))
    except Unsupported as error:
        pytest.skip(str(error))
    result = await sandbox.exec("cat /srv/deep/sub/note.txt /etc/hosts; ls /.host; touch /tmp/x /run/x")
    assert result.output.startswith("hello\n127.0.0.1 localhost ")
    await sandbox.destroy()
    assert [path.name for path in outside.iterdir()] == ["hosts"]
    assert (outside / "hosts").read_text() == "of the machine\n"


@pytest.mark.parametrize("workdir", ["app", "/../x", "/tmp/x", "/proc", "/dev/x", "/.host", "/a/./b"])
async def test_a_working_directory_that_cannot_be(
    backend: Backend, repo: Path, files: Path, workdir: str
) -> None:
    with pytest.raises(SandboxError, match=r"working directory|cannot"):
        await backend.create(Spec(repo=repo, image=Image(root=files, workdir=workdir)))


async def test_a_directory_that_is_no_image(backend: Backend, repo: Path, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"no image|cannot|lacks"):
        await backend.create(Spec(repo=repo, image=Image(root=tmp_path)))


def test_a_rootfs_archive_is_unpacked_once(archive: Path, tmp_path: Path) -> None:
    first = images.unpack(archive, tmp_path / "store")
    assert (first.root / "bin/sh").stat().st_mode & 0o111
    (first.root / "mark").touch()
    assert (images.unpack(archive, tmp_path / "store").root / "mark").exists()
    assert first.workdir == "/repo"
    assert [path.name for path in (tmp_path / "store").iterdir()] == [images.file_digest(archive)]


@pytest.mark.parametrize(
    "hostile",
    [
        member("../out"),
        member("/etc/out"),
        member("a/../../out"),
        member("link", type=tarfile.LNKTYPE, linkname="../out"),
        member("link", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
        member("big", size=4_000_001),
    ],
    ids=lambda each: f"{each.name}-{each.linkname}",
)
def test_archives_that_climb_out_or_burst_are_refused(hostile: tarfile.TarInfo, tmp_path: Path) -> None:
    path = tar_of(tmp_path / "x.tar", member("bin", type=tarfile.DIRTYPE, mode=0o755), hostile)
    with pytest.raises(SandboxError, match=r"leads out of the archive|a bomb"):
        images.unpack(path, tmp_path / "store", most_bytes=4_000_000)
    assert list((tmp_path / "store").iterdir()) == []
    assert not (tmp_path / "out").exists()


def test_a_path_through_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    path = tar_of(
        tmp_path / "x.tar",
        member("way", type=tarfile.SYMTYPE, linkname=str(tmp_path / "outside")),
        member("way/out"),
    )
    with pytest.raises(SandboxError, match="leads out"):
        images.unpack(path, tmp_path / "store")
    assert list((tmp_path / "outside").iterdir()) == []


def test_devices_are_left_out(tmp_path: Path) -> None:
    device = member("dev/sda", type=tarfile.BLKTYPE, devmajor=8, devminor=0)
    fifo = member("run/pipe", type=tarfile.FIFOTYPE)
    path = tar_of(tmp_path / "x.tar", member("bin", type=tarfile.DIRTYPE, mode=0o755), device, fifo)
    root = images.unpack(path, tmp_path / "store").root
    assert [each.name for each in root.iterdir()] == ["bin"]


@given(data=st.binary(max_size=600))
def test_rubbish_is_named_and_leaves_nothing(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("rubbish")
    (directory / "x.tar").write_bytes(data)
    with pytest.raises(SandboxError, match=r"x\.tar"):
        images.unpack(directory / "x.tar", directory / "store")


def test_a_layout_that_bursts_or_lies_is_refused(tmp_path: Path) -> None:
    bomb = layout(tmp_path / "bomb", bytes(5_000_000))
    with pytest.raises(SandboxError, match="unpacks to more than 4000000 bytes"):
        images.unpack(bomb, tmp_path / "store", most_bytes=4_000_000)
    lying = layout(tmp_path / "lying", b"")
    blobs = (lying / "blobs/sha256").iterdir()
    manifest = next(path for path in blobs if b"schemaVersion" in path.read_bytes())
    manifest.write_bytes(manifest.read_bytes() + b" ")
    with pytest.raises(SandboxError, match="other bytes than its digest"):
        images.unpack(lying, tmp_path / "store")
    index = json.loads((lying / "index.json").read_text())
    index["manifests"] *= 2
    (lying / "index.json").write_text(json.dumps(index))
    with pytest.raises(SandboxError, match="holds 2 images"):
        images.unpack(lying, tmp_path / "store")


@tool("umoci")
@pytest.mark.machines
def test_a_layout_is_unpacked_with_its_settings(archive: Path, tmp_path: Path) -> None:
    config = {"Env": ["FOO=bar=baz", "PATH=/bin"], "WorkingDir": "/app"}
    image = images.unpack(
        layout(tmp_path / "layout", archive.read_bytes(), config=config), tmp_path / "store"
    )
    assert (image.workdir, dict(image.environment)) == ("/app", {"FOO": "bar=baz", "PATH": "/bin"})
    assert (image.root / "etc/os-release").read_text() == "ID=tiny\n"


@tool("skopeo")
@pytest.mark.machines
@pytest.mark.parametrize("kind", ["docker-archive", "oci-archive"])
def test_archives_of_images_are_unpacked(kind: str, archive: Path, tmp_path: Path) -> None:
    source = layout(tmp_path / "layout", archive.read_bytes(), config={"WorkingDir": "/app"})
    saved = tmp_path / "saved.tar"
    copy = ["skopeo", "--insecure-policy", "copy", "--quiet", f"oci:{source}:x", f"{kind}:{saved}:tiny:1"]
    subprocess.run(copy, check=True, cwd=tmp_path)
    image = images.unpack(saved, tmp_path / "store")
    assert image.workdir == "/app" and (image.root / "bin/sh").is_file()


def test_instructions_have_their_first_lines() -> None:
    text = "# c\nFROM a\n\nRUN x && \\\n  # inner\n  y\nCOPY . /z\n"
    found = [(each.line, each.text) for each in dockerfile.instructions(text)]
    assert found == [(2, "FROM a"), (4, "RUN x && y"), (7, "COPY . /z")]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("FROM python:3.12\n", 1, "the base image python:3.12 would be fetched"),
        ("# c\nFROM --platform=linux/amd64 x\n", 2, "the base image x would be fetched"),
        ("FROM tiny:1 AS one\nFROM one\nADD --chown=1 https://x.example/a /a\n", 3, "ADD fetches https://"),
        ("FROM scratch\nADD git@example.org:a/b.git /a\n", 2, "ADD fetches git@"),
    ],
)
def test_what_would_be_fetched_is_named_by_line(text: str, line: int, reason: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(text)
    with pytest.raises(SandboxError, match=rf"Dockerfile:{line}: {reason}"):
        dockerfile.check(tmp_path / "Dockerfile", {"tiny:1": tmp_path / "tiny.tar"})


@tool("buildah")
@pytest.mark.machines
def test_a_dockerfile_is_built_and_a_failing_line_named(archive: Path, tmp_path: Path) -> None:
    context, store, bases = tmp_path / "context", tmp_path / "store", {"tiny:1": archive}
    context.mkdir()
    (context / "note.txt").write_text("note\n")
    (context / "Dockerfile").write_text(
        "FROM tiny:1\nWORKDIR /srv\nCOPY note.txt .\nRUN cat note.txt > \\\n  copy.txt\nENV A=b\n"
    )
    image = dockerfile.build(context, store, bases)
    assert (image.root / "srv/copy.txt").read_text() == "note\n"
    assert (image.workdir, image.environment["A"]) == ("/srv", "b")
    (context / "Dockerfile").write_text("FROM tiny:1\nRUN touch /ok && \\\n  ls /ok\n\nRUN cat /nowhere\n")
    with pytest.raises(SandboxError, match=r"(?s)Dockerfile:5: `RUN cat /nowhere` failed.*No such file"):
        dockerfile.build(context, store, bases)


def test_a_task_is_built_from_a_file(
    files: Path, archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, store = tmp_path / "task", tmp_path / "store"
    (task / "environment").mkdir(parents=True)
    (task / "tests").mkdir()
    (task / "instruction.md").write_text("mend it\n")
    (task / "task.toml").write_text('schema_version = "1.1"\n')
    (task / "tests/test.sh").write_text("echo 1 > $LOGS/reward.txt\n")
    command = ["tasks", "build", str(task), "--store", str(store), "--image"]
    assert main([*command, str(archive)]) == 1
    assert "the image has no /repo to take the task's repository from" in capsys.readouterr().err
    assert list((task / "environment").iterdir()) == []
    with tarfile.open(tmp_path / "with-repo.tar", "w") as tar:
        tar.add(files, ".")
        tar.add(files / "app", "repo")
    assert main([*command, str(tmp_path / "with-repo.tar")]) == 0
    image = image_of(load_task(task))
    assert image is not None and image.workdir == "/repo" and (image.root / "bin/sh").is_file()
    assert (task / "environment/repo/main.txt").read_text() == "of the image\n"
    (task / "environment/image.json").write_text("{}")
    with pytest.raises(TaskError, match=r"image\.json cannot be read .*build it again"):
        load_task(task)


async def test_a_published_task_is_checked_by_its_own_script(
    ns_backend: Backend, files: Path, tmp_path: Path
) -> None:
    """The script finds the tests and the place of its reward where Harbor has them."""
    task = tmp_path / "task"
    (task / "environment").mkdir(parents=True)
    (task / "tests").mkdir()
    (task / "instruction.md").write_text("write hello to /repo/hello.txt\n")
    (task / "task.toml").write_text('version = "1.0"\n[environment]\nmemory_mb = 1024\n')
    (task / "tests/test_outputs.py").write_text("def test_hello(): assert open('/repo/hello.txt').read()")
    (task / "tests/test.sh").write_text(
        '#!/bin/bash\nls /tests/test_outputs.py && test "$(cat /repo/hello.txt)" = hello\n'
        "test $? -eq 0 && reward=1 || reward=0\necho $reward > /logs/verifier/reward.txt\n"
    )
    image = tmp_path / "image.tar"
    with tarfile.open(image, "w") as tar:
        tar.add(files, ".")
        tar.add(files / "app", "repo")
    made = commands.build(task, tmp_path / "store", image=image, bases={})
    loaded = load_task(task)
    assert (made.workdir, loaded.test_ids, loaded.memory_mb) == ("/repo", ("reward",), 1024)
    verifier = Verifier(ns_backend)
    found = [await verifier.verify(loaded, each) for each in ({}, {"hello.txt": b"hello\n"})]
    assert [(each.passed, each.void, each.grade) for each in found] == [
        (False, None, Grade.FORGEABLE),
        (True, None, Grade.FORGEABLE),
    ], found


def test_a_directory_that_is_no_task(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"no task: it has no task\.toml"):
        commands.build(tmp_path, tmp_path / "store", image=None, bases={})
