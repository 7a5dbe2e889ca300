"""A backend of each kind, and repositories to open in them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.sandbox.foreign.cluster import POOL, AgentSandboxCluster, kubeconfig, serving
from tests.sandbox.foreign.e2b_server import KEY, E2bServer

from ostinato.sandbox import Backend, SandboxError
from ostinato.sandbox.choose import KINDS, probe
from ostinato.sandbox.config import SandboxConfig
from ostinato.sandbox.foreign import settings

FILES = {
    "calc.py": "def alpha(a, b):\n    return a + b\n",
    "test_calc.py": "from calc import alpha\n\n\ndef test_alpha():\n    assert alpha(2, 3) == 5\n",
    "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-p no:cacheprovider"\n',
    "sub/note.txt": "hello\n",
    ".git/HEAD": "ref: refs/heads/main\n",
}


def write_files(directory: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


@contextmanager
def closed_at_the_end() -> Iterator[dict[str, Backend]]:
    """Yield the backends that tests opened so far, by name, and close them at the end."""
    found: dict[str, Backend] = {}
    yield found
    for each in found.values():
        asyncio.run(each.aclose())


@pytest.fixture(scope="session")
def backends() -> Iterator[dict[str, Backend]]:
    """Yield the backends by name; each is tried once."""
    with closed_at_the_end() as found:
        yield found


@pytest.fixture(autouse=True)
async def no_sandbox_outlives_its_test(backends: dict[str, Backend]) -> AsyncIterator[None]:
    """Destroy what a failed test left, while the event loop of its connections still runs."""
    yield
    for backend in backends.values():
        for sandbox in tuple(getattr(backend, "_sandboxes", ())):
            await sandbox.destroy()


def opened(name: str, backends: dict[str, Backend]) -> Backend:
    if name not in backends:
        try:
            config = SandboxConfig(runtime="runsc" if name == GVISOR else "")
            backends[name] = asyncio.run(probe(KINDS["podman" if name == GVISOR else name], config))
        except SandboxError as error:
            if name in LIBRARIES and find_spec(LIBRARIES[name]) is not None:
                raise  # its server is ours: what does not work is a fault
            pytest.skip(f"{name}: {error}")
    return backends[name]


@pytest.fixture
def ns_backend(backends: dict[str, Backend]) -> Backend:
    return opened("ns", backends)


@pytest.fixture(scope="session")
def e2b_server(
    tmp_path_factory: pytest.TempPathFactory, backends: dict[str, Backend]
) -> Iterator[tuple[E2bServer, str]]:
    """Yield a contract server of E2B, and its URL."""
    server = E2bServer(tmp_path_factory.mktemp("e2b"))
    with serving(server.app()) as url:
        yield server, url
        if "e2b" in backends:
            asyncio.run(backends.pop("e2b").aclose())


@pytest.fixture(scope="session")
def e2b_settings(e2b_server: tuple[E2bServer, str]) -> dict[str, str]:
    _, url = e2b_server
    return {"E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_API_KEY": KEY, "E2B_HTTP_VERSION": "1.1"}


@pytest.fixture(scope="session")
def agent_sandbox_server(
    tmp_path_factory: pytest.TempPathFactory, backends: dict[str, Backend]
) -> Iterator[tuple[AgentSandboxCluster, str]]:
    """Yield a contract server of agent-sandbox, and its URL."""
    cluster = AgentSandboxCluster(tmp_path_factory.mktemp("cluster"))
    with serving(cluster.app()) as url:
        yield cluster, url
        if "agent-sandbox" in backends:
            asyncio.run(backends.pop("agent-sandbox").aclose())


@pytest.fixture(scope="session")
def agent_sandbox_settings(agent_sandbox_server: tuple[AgentSandboxCluster, str]) -> dict[str, str]:
    cluster, url = agent_sandbox_server
    written = cluster.folder / "kubeconfig"
    written.write_text(kubeconfig(url))
    return {"KUBECONFIG": str(written), settings.POOL: POOL, settings.ROUTER: url}


LIBRARIES = {"e2b": "e2b", "agent-sandbox": "k8s_agent_sandbox"}
"""The library of each backend that tests reach on a contract server of their own."""
FAR = tuple(LIBRARIES)
"""Backends whose commands show their output at the end, and take no input."""
GVISOR = "podman with runsc"
MACHINES = ("podman", GVISOR, "docker")
"""Backends that have to be installed: `make test-sandboxes` does, and runs their tests."""


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.machines] * (name in MACHINES)) for name in (*KINDS, GVISOR)
    ]
)
def backend(request: pytest.FixtureRequest, backends: dict[str, Backend]) -> Backend:
    return by_name(request, request.param, backends)


def by_name(request: pytest.FixtureRequest, name: str, backends: dict[str, Backend]) -> Backend:
    """Return a backend; one on a server is opened with the variables that name the server."""
    named = f"{name}_settings".replace("-", "_")
    if name in backends or named not in globals():
        return opened(name, backends)
    variables = request.getfixturevalue(named)
    with pytest.MonkeyPatch.context() as patch:  # what other tests start must not talk to this server
        for variable, value in variables.items():
            patch.setenv(variable, value)
        return opened(name, backends)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return write_files(tmp_path / "repo", FILES)
