"""E2B's sandboxes through its own library: its cloud, its self-hosted infrastructure, and servers like it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ostinato import extras
from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.foreign import settings
from ostinato.sandbox.foreign.engine import LIFE_S

try:
    import e2b
    import httpx
except ImportError as missing:
    raise SandboxError(extras.sentence("e2b", "E2B's sandbox")) from missing

FAILURES = (e2b.SandboxException, e2b.AuthenticationException, httpx.HTTPError, OSError, RuntimeError)


class E2bEngine:
    """A client of the server that E2B's variables name."""

    name = "e2b"
    lost = ()

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Read the variables. Raises SandboxError when there is no key."""
        if not environment.get(settings.E2B_KEY):
            raise SandboxError(f"no key for E2B: set {settings.E2B_KEY}")
        self._template = environment.get(settings.E2B_TEMPLATE, "base")
        self._options = e2b.ConnectionConfig().get_api_params()

    async def start(self) -> "E2bMachine":
        with _failures(f"no sandbox of E2B from {self._template!r} at {self._options['api_url']}"):
            started = await e2b.AsyncSandbox.create(
                self._template,
                timeout=LIFE_S,
                allow_internet_access=False,
                **self._options,
            )
        return E2bMachine(started)


class E2bMachine:
    """One sandbox."""

    def __init__(self, sandbox: e2b.AsyncSandbox) -> None:
        self.id = sandbox.sandbox_id
        self._sandbox = sandbox

    async def run(self, command: str, within_s: float) -> str:
        with _failures(f"sandbox {self.id} ran no command"):
            try:
                return (await self._sandbox.commands.run(command, timeout=within_s)).stdout
            except e2b.CommandExitException as error:
                return f"{error.stderr}\n{error.stdout}"

    async def upload(self, path: str, data: bytes) -> None:
        with _failures(f"sandbox {self.id} did not take {path}"):
            await self._sandbox.files.write(path, data)

    async def download(self, path: str) -> bytes:
        with _failures(f"sandbox {self.id} did not give {path}"):
            try:
                return bytes(await self._sandbox.files.read(path, format="bytes"))
            except e2b.FileNotFoundException as error:
                raise FileNotFoundError(path) from error

    async def end(self) -> None:
        with _failures(f"sandbox {self.id} was not ended"):
            await self._sandbox.kill()


@contextmanager
def _failures(what: str) -> Iterator[None]:
    """Raise what the library raises as SandboxError; it names what it said and what to do."""
    try:
        yield
    except FileNotFoundError:
        raise
    except FAILURES as error:
        raise SandboxError(f"{what}: {type(error).__name__}: {error}; {settings.E2B}") from error
