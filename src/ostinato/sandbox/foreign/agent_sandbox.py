"""Sandboxes of Kubernetes' agent-sandbox through its own library: a claim on a warm pool, then the router.

Source of the calls: github.com/kubernetes-sigs/agent-sandbox, clients/python (1.0.8), k8s/crds (v1beta1) and
examples/python-runtime-sandbox, whose server runs in the sandboxes and takes commands without a shell.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ostinato import extras
from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.foreign import settings
from ostinato.sandbox.foreign.engine import LIFE_S

try:
    import aiohttp
    import httpx
    from k8s_agent_sandbox import models
    from k8s_agent_sandbox.async_sandbox import AsyncSandbox
    from k8s_agent_sandbox.async_sandbox_client import AsyncSandboxClient
    from k8s_agent_sandbox.exceptions import SandboxRequestError
    from kubernetes_asyncio import config
    from kubernetes_asyncio.client import ApiClient, ApiException, Configuration
    from kubernetes_asyncio.config import ConfigException
except ImportError as missing:
    raise SandboxError(extras.sentence("k8s_agent_sandbox", "agent-sandbox")) from missing

_FAILURES = (
    *(RuntimeError, ValueError, TimeoutError, OSError),
    *(ConfigException, aiohttp.ClientError, httpx.HTTPError),
)
"""RuntimeError is the base of the library's own errors, ValueError that of its checks."""


class AgentSandboxEngine:
    """A client of the cluster that the Kubernetes configuration names."""

    name = "agent-sandbox"
    lost = ("a request takes as long as the router's --proxy-timeout allows: 180 s unless it is set",)

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Read the variables. Raises SandboxError when no pool is named."""
        self._pool, self._space = (
            environment.get(settings.POOL, ""),
            environment.get(settings.NAMESPACE, "default"),
        )
        if not self._pool:
            raise SandboxError(f"no pool of agent-sandbox is named: set {settings.POOL}")
        self._kubeconfig = {"config_file": environment["KUBECONFIG"]} if "KUBECONFIG" in environment else {}
        self._connection: models.SandboxConnectionConfig
        if router := environment.get(settings.ROUTER):
            self._connection = models.SandboxDirectConnectionConfig(api_url=router)
        elif gateway := environment.get(settings.GATEWAY):
            self._connection = models.SandboxGatewayConnectionConfig(
                gateway_name=gateway, gateway_namespace=self._space
            )
        else:
            self._connection = models.SandboxInClusterConnectionConfig()

    async def start(self) -> "AgentSandboxMachine":
        """Start a sandbox. Each has a client of its own, because a client belongs to one event loop."""
        with _failures(f"no sandbox from the pool {self._pool!r} in {self._space!r}"):
            api = await self._api()
            try:
                client = AsyncSandboxClient(self._connection, cleanup=False, api_client=api)
                sandbox = await client.create_sandbox(self._pool, self._space, shutdown_after_seconds=LIFE_S)
            except BaseException:
                await api.close()
                raise
        return AgentSandboxMachine(api, sandbox)

    async def _api(self) -> ApiClient:
        """Return a client of the Kubernetes API; the library's own has KUBECONFIG as it was at import."""
        configuration = Configuration()
        try:
            config.load_incluster_config(client_configuration=configuration)
        except ConfigException:
            await config.load_kube_config(**self._kubeconfig, client_configuration=configuration)
        return ApiClient(configuration)


class AgentSandboxMachine:
    """One sandbox, by its claim."""

    def __init__(self, api: ApiClient, sandbox: AsyncSandbox) -> None:
        self.id = str(sandbox.claim_name)
        self._api, self._sandbox = api, sandbox
        assert sandbox.commands is not None and sandbox.files is not None
        self._commands, self._files = sandbox.commands, sandbox.files

    async def run(self, command: str, within_s: float) -> str:
        with _failures(f"sandbox {self.id} ran no command"):
            result = await self._commands.run(command, timeout=int(within_s) + 1)
        return f"{result.stderr}\n{result.stdout}"

    async def upload(self, path: str, data: bytes) -> None:
        with _failures(f"sandbox {self.id} did not take {path}"):
            await self._files.write(path, data)

    async def download(self, path: str) -> bytes:
        with _failures(f"sandbox {self.id} did not give {path}"):
            try:
                return bytes(await self._files.read(path))
            except SandboxRequestError as error:
                if error.status_code == 404:
                    raise FileNotFoundError(path) from error
                raise

    async def end(self) -> None:
        """Delete the claim; the library's own `delete_sandbox` only logs that it failed."""
        with _failures(f"the claim {self.id} was not deleted"):
            await self._sandbox.terminate()
            await self._api.close()


@contextmanager
def _failures(what: str) -> Iterator[None]:
    """Raise what the libraries raise as SandboxError, with the way to mend it."""
    try:
        yield
    except FileNotFoundError:
        raise
    except ApiException as error:
        said = f"the Kubernetes API refused: {error.status} {error.reason}"
        raise SandboxError(f"agent-sandbox: {what}: {said}; {settings.AGENT_SANDBOX}") from error
    except _FAILURES as error:
        said = f"{type(error).__name__}: {error}"
        if isinstance(error, SandboxRequestError) and error.status_code is not None:
            said += f" (status {error.status_code})"
        raise SandboxError(f"agent-sandbox: {what}: {said}; {settings.AGENT_SANDBOX}") from error
