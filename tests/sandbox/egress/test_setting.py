"""The setting `egress` of a run, a benchmark and of mining: what sessions reach, and exams do not."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fuzz.tasks_on_disk import write_task
from tests.sandbox.egress.conftest import serving
from tests.sandbox.egress.test_listener import hello

from ostinato.config import ConfigError
from ostinato.loop.config import RunConfig, check
from ostinato.mining.trials import survey
from ostinato.sandbox import Backend, SandboxError, Spec
from ostinato.sandbox.base import LetOut
from ostinato.sandbox.choose import choose_backend
from ostinato.sandbox.config import SandboxConfig
from ostinato.sandbox.egress.setting import LettingBackend, policy
from ostinato.sandbox.exam.verifier import Verifier

FETCH = "import urllib.request as u; print(u.urlopen('http://localhost:{port}/', timeout=60).read().decode())"


SOLUTION = "import urllib.request as u; u.urlopen('http://solution.test/x')"


def test_registries_are_those_of_the_machines_own_configuration(tmp_path: Path) -> None:
    (tmp_path / ".pip").mkdir()
    (tmp_path / ".pip/pip.conf").write_text(
        "[global]\nindex-url = https://me:secret@wheels.test/simple\nextra-index-url = file:///wheels\n"
        "[install]\nextra-index-url = http://more.test:8080/x\ntrusted-host = more.test\n"
    )
    (tmp_path / ".npmrc").write_text("color = false\nregistry = https://npm.test/\n")
    home = {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path)}
    found = policy("registries", home)
    assert found is not None
    assert found.allow == ("wheels.test:443", "more.test:8080", "npm.test:443")
    assert found.environment == {
        "PIP_INDEX_URL": "https://wheels.test/simple",
        "PIP_EXTRA_INDEX_URL": "http://more.test:8080/x",
        "PIP_TRUSTED_HOST": "more.test",
        "npm_config_registry": "https://npm.test/",
    }
    named = policy("registries", {**home, "PIP_INDEX_URL": "https://own.test/simple"})
    assert named is not None and named.allow == ("own.test:443", "more.test:8080", "npm.test:443")


def test_what_cannot_be_meant_is_an_error_before_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert policy("none") is None
    with pytest.raises(SandboxError, match=r"ftp://x\.test"):
        policy("registries", {"HOME": str(tmp_path), "PIP_INDEX_URL": "ftp://x.test/simple"})
    folder = {"PIP_INDEX_URL": "file:///wheels", "PIP_CONFIG_FILE": "/dev/null"}
    with pytest.raises(SandboxError, match="names none of a server"):
        policy("registries", {"HOME": str(tmp_path), **folder})
    for setting in (str(tmp_path / "absent.toml"), "everything"):
        with pytest.raises(ConfigError):
            check(RunConfig(sandbox=SandboxConfig(egress=setting)))


async def test_a_backend_without_egress_is_refused(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('allow = ["a.test:443"]\n')
    with pytest.raises(SandboxError, match="needs the backend ns"):
        await choose_backend(SandboxConfig(backend="process", egress=str(tmp_path / "policy.toml")))


@pytest.fixture
async def letting(ns_backend: Backend, tmp_path: Path) -> AsyncIterator[tuple[Backend, int]]:
    """Yield a backend as practice, bench and mining choose it, and the port that its sandboxes may reach."""
    async with serving(hello) as port:
        networks = 'networks = ["127.0.0.0/8", "::1/128"]\n'
        (tmp_path / "policy.toml").write_text(f'allow = ["localhost:{port}"]\n{networks}')
        backend = await choose_backend(SandboxConfig(backend="ns", egress=str(tmp_path / "policy.toml")))
        yield backend, port
        await backend.aclose()


async def test_a_session_of_practice_or_bench_reaches_what_is_allowed_and_the_rest_is_counted(
    letting: tuple[Backend, int], repo: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend, port = letting
    sandbox = await backend.create(Spec(repo=repo))
    fetched = await sandbox.exec(f'env no_proxy= NO_PROXY= python -c "{FETCH.format(port=port)}"')
    assert fetched.output == "hello\n"
    for _ in range(2):
        refused = await sandbox.exec(f'python -c "{SOLUTION}"')
        assert "HTTP Error 403" in refused.output
    with caplog.at_level(logging.WARNING):
        await sandbox.destroy()
    assert "2 connections refused: solution.test:80 (2)" in caplog.text
    assert isinstance(sandbox, LetOut) and sandbox.refusals == {"solution.test:80": 2}


async def test_an_exam_reaches_nothing(letting: tuple[Backend, int], tmp_path: Path) -> None:
    """The candidate's code would fetch its answer; the same code passes where it needs no network."""
    backend, port = letting
    hidden = "from calc import alpha\n\n\ndef test_it():\n    assert alpha() == 'hello'\n"
    repo = {"calc.py": "def alpha():\n    return ''\n"}
    task = write_task(tmp_path / "task", repo, {"test_hidden.py": hidden}, ("test_hidden.py::test_it",))
    fetch = FETCH.format(port=port).replace("print(", "answer = (")
    cheat = f"import os\nos.environ['no_proxy'] = ''\ndef alpha():\n    {fetch}\n    return answer\n"
    verifier = Verifier(backend)
    assert not (await verifier.verify(task, {"calc.py": cheat.encode()})).passed
    assert (await verifier.verify(task, {"calc.py": b"def alpha():\n    return 'hello'\n"})).passed


async def test_tests_that_mining_tries_reach_what_is_allowed(letting: tuple[Backend, int]) -> None:
    backend, port = letting
    assert isinstance(backend, LettingBackend)
    test = (
        f"import os\nos.environ['no_proxy'] = os.environ['NO_PROXY'] = ''\n\n\ndef test_it():\n    {FETCH}\n"
    )
    files = {"test_net.py": test.format(port=port).encode()}
    found = await survey(backend, "net", files, ("test_net.py",))
    assert "test_net.py::test_it" in found.passing
