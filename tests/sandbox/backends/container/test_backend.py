"""What containers have beyond the promises of every backend.

Covers sandbox/backends/container/command_line.py, sandbox/backends/container/root.py,
sandbox/guest/container_main.py and sandbox/guest/exam_calls.py, which tests/sandbox/test_conformance.py,
tests/sandbox/exam/test_verifier.py and tests/escapes run in every kind of container too.
"""

import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.sandbox.conftest import opened
from tests.sandbox.test_killed import RUNNER

from ostinato.sandbox import Backend, Limits, Mount, SandboxError, Spec, Unsupported
from ostinato.sandbox.backends.container.command_line import ContainerEngine
from ostinato.sandbox.base import Egress, Image
from ostinato.sandbox.choose import KINDS, probe
from ostinato.sandbox.config import SandboxConfig

IMAGE = "localhost/ostinato-test:tiny"


def command(program: str, config: SandboxConfig, home: Path, spec: Spec) -> str:
    engine = ContainerEngine(program, config, home)
    return " ".join(engine.create("name", spec, repo_mb=1))


@pytest.mark.parametrize("program", ["podman", "docker"])
@pytest.mark.parametrize("runtime", ["", "runsc"])
def test_no_network_no_rights_and_bounds(program: str, runtime: str, tmp_path: Path, repo: Path) -> None:
    config = SandboxConfig(image="some/image:1", runtime=runtime)
    words = command(program, config, tmp_path, Spec(repo=repo, limits=Limits(disk_mb=7)))
    for wanted in ("--network none", "--cap-drop all", "--security-opt no-new-privileges", "--read-only"):
        assert wanted in words
    assert "size=7m" in words and "some/image:1" in words
    assert "--privileged" not in words and "docker.sock" not in words
    assert (f"--runtime {runtime}" in words) == bool(runtime)


def test_a_path_that_an_engine_would_split_is_refused(tmp_path: Path, repo: Path) -> None:
    odd = tmp_path / "a:b"
    odd.mkdir()
    spec = Spec(repo=repo, mounts=(Mount(source=odd, target="/mnt/odd"),))
    with pytest.raises(SandboxError, match="colon"):
        command("podman", SandboxConfig(image="x"), tmp_path, spec)


def test_an_engine_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="podman cannot be run"):
        ContainerEngine("podman", SandboxConfig(image="x"), tmp_path).prepare()


@pytest.fixture
def podman(backends: dict[str, Backend]) -> Backend:
    return opened("podman", backends)


@pytest.mark.machines
async def test_what_it_lacks_is_said(podman: Backend, repo: Path) -> None:
    for spec in (
        Spec(repo=repo, egress=Egress(allow=("example.org:443",))),
        Spec(repo=repo, image=Image(root=repo)),
    ):
        with pytest.raises(Unsupported, match="use ns"):
            await podman.create(spec)


@pytest.fixture(scope="session")
def image(backends: dict[str, Backend], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the name of an image of busybox alone, without a Python or a C library."""
    opened("podman", backends)
    busybox = Path("/bin/busybox")
    if not busybox.exists():
        pytest.skip("there is no busybox: make test-sandboxes installs it")
    archive = tmp_path_factory.mktemp("image") / "tiny.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(busybox, "bin/busybox")
        for name in ("sh", "cat", "ls", "id"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    subprocess.run(["podman", "import", str(archive), IMAGE], check=True, capture_output=True)
    yield IMAGE
    subprocess.run(["podman", "rmi", "--force", IMAGE], check=True, capture_output=True)


@pytest.fixture(params=["", "runsc"])
async def named(request: pytest.FixtureRequest, image: str) -> AsyncIterator[Backend]:
    backend = await probe(KINDS["podman"], SandboxConfig(image=image, runtime=request.param))
    yield backend
    await backend.aclose()


@pytest.mark.machines
async def test_an_image_is_taken_by_its_name_and_not_written(named: Backend, repo: Path) -> None:
    sandbox = await named.create(Spec(repo=repo))
    seen = await sandbox.exec("ls -d /usr; cat sub/note.txt; echo x > /bin/new")
    assert seen.exit_code != 0 and "hello\n" in seen.output and "/usr\n" not in seen.output
    await sandbox.write("new", b"1")
    (fork,) = await sandbox.fork()
    assert await fork.changes() == {"new": b"1"}
    await fork.destroy()
    await sandbox.destroy()


@pytest.mark.machines
async def test_an_unknown_image_is_an_error(podman: Backend) -> None:
    with pytest.raises(SandboxError, match="has no image 'localhost/nowhere'"):
        await probe(KINDS["podman"], SandboxConfig(image="localhost/nowhere"))


@pytest.mark.machines
def test_no_container_outlives_a_killed_runner(podman: Backend, repo: Path) -> None:
    """The agent's input ends with the runner, and the container with its agent."""
    with subprocess.Popen(
        [sys.executable, "-c", RUNNER, "podman", str(repo)], stdout=subprocess.PIPE
    ) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == b"up\n"
        os.kill(runner.pid, signal.SIGKILL)
    deadline = time.monotonic() + 300
    while subprocess.run(["pgrep", "-f", "^sleep 1000$"], capture_output=True, check=False).stdout:
        assert time.monotonic() < deadline, "a command of the container still runs"
        time.sleep(0.1)
