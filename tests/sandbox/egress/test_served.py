"""An egress policy holds on a node of a fleet, for every backend."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.sandbox.conftest import served
from tests.sandbox.egress.conftest import serving
from tests.sandbox.egress.test_listener import ASK, LIMITS, ask, hello

from ostinato.fleet.client import RemoteBackend
from ostinato.sandbox import Backend, SandboxError, Spec
from ostinato.sandbox.base import Egress


@pytest.fixture
async def remote(backend: Backend, tmp_path: Path) -> AsyncIterator[RemoteBackend]:
    """Run a node with the same backend; yield a client of it."""
    state = tmp_path / "node"
    with served("node", state, "--backend", backend.name) as url:
        remote = await RemoteBackend.connect(url, (state / "key").read_text())
        yield remote
        await remote.aclose()


async def test_a_remote_sandbox_and_its_fork_reach_their_hosts(remote: RemoteBackend, tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo/ask.py").write_text(ASK)
    async with serving(hello) as port, serving(hello) as other:
        networks = ("127.0.0.0/8", "::1/128")
        egress = Egress(allow=(f"localhost:{port}",), networks=networks)
        sandbox = await remote.create(Spec(repo=tmp_path / "repo", egress=egress, limits=LIMITS))
        (fork,) = await sandbox.fork()
        for each in (sandbox, fork):
            assert "hello" in await ask(each, f"localhost:{port}")
            assert "not allowed" in await ask(each, f"localhost:{other}")
            await each.destroy()
        if "transparent" not in remote.capabilities.egress:
            transparent = Egress(allow=(f"localhost:{port}",), transparent=True)
            with pytest.raises(SandboxError, match=r"use ns|nftables"):
                await remote.create(Spec(repo=tmp_path / "repo", egress=transparent))
