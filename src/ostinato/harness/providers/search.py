"""Semantic search for a session: the search service over HTTP, on the sandbox's files as they are now.

::

    sandbox's files ─► manifest {path: hash} ─► service: what is missing? ─► those contents ─► query ─► hits

Production and practice run the same code, so one tree gives one result. The service returns places, and the
text is cut out here. It knows files by the names that the model reads, since JSON holds text alone.
"""

import base64
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp

from ostinato.harness.errors import InvalidArguments, ProviderError
from ostinato.harness.providers.base import Hit
from ostinato.harness.tools.names import meant, shown
from ostinato.sandbox.base import Sandbox, SandboxError
from ostinato.tasks.ignored_files import GITIGNORE, Ignored, is_cache, is_secret

MAX_FILE_BYTES = 2**20
UPLOAD_BYTES = 4 * 2**20
SHOWN_CHARS = 200
"""The most characters of a hit's line that are shown."""
ATTEMPTS = 3
TIMEOUT = aiohttp.ClientTimeout(total=120, sock_connect=5)
NOT_FOUND, CONFLICT, UNACCEPTABLE = 404, 409, 422


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAt:
    """The address and key of a search service.

    >>> SearchAt(url="http://127.0.0.1:8090", key="k").url
    'http://127.0.0.1:8090'
    """

    url: str
    key: str
    http: aiohttp.ClientSession | None = None
    """The connections of a caller that searches often; the caller closes them."""

    def of(self, sandbox: Sandbox) -> "SandboxSearch":
        """Return the search over one sandbox, the same in production and practice."""
        return SandboxSearch(self.url, self.key, sandbox, self.http)


class SandboxSearch:
    """The search over one sandbox. It holds nothing between calls.

    The caller closes `http`; without it each search opens its own connection.
    """

    def __init__(
        self, url: str, key: str, sandbox: Sandbox, http: aiohttp.ClientSession | None = None
    ) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._sandbox = sandbox
        self._http = http

    async def search(self, query: str, *, path: str | None, k: int) -> Sequence[Hit]:
        """Return the `k` closest parts, the best first; raises InvalidArguments, ProviderError."""
        files = {shown(name): data for name, data in (await contents(self._sandbox)).items()}
        try:
            if self._http is not None:
                return await self._found(self._http, files, query, self._inside(path), k)
            async with aiohttp.ClientSession(timeout=TIMEOUT) as http:
                return await self._found(http, files, query, self._inside(path), k)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ProviderError(f"the search service does not answer: {error}") from error

    async def _found(
        self, http: aiohttp.ClientSession, files: Mapping[str, bytes], query: str, path: str, k: int
    ) -> list[Hit]:
        manifest = {name: content_hash(data) for name, data in files.items()}
        asked = {"tree": tree_hash(manifest), "query": query, "path": shown(path), "k": k}
        for _ in range(ATTEMPTS):
            status, answer = await self._post(http, "/v1/search", asked)
            if status == NOT_FOUND:
                _, registered = await self._post(http, "/v1/search/trees", {"files": manifest})
                await self._upload(http, files, registered["missing"])
            elif status == CONFLICT:
                await self._upload(http, files, answer["error"]["missing"])
            else:
                return [cut_out(found, files[found["path"]]) for found in answer["hits"]]
        raise ProviderError("the search service forgets what it is told: is its disk full?")

    async def _upload(
        self, http: aiohttp.ClientSession, files: Mapping[str, bytes], paths: list[str]
    ) -> None:
        for batch in _batches(files, paths):
            body = [{"path": path, "content": base64.b64encode(files[path]).decode()} for path in batch]
            await self._post(http, "/v1/search/files", {"files": body})

    async def _post(self, http: aiohttp.ClientSession, path: str, body: object) -> tuple[int, dict[str, Any]]:
        """Return status and body: 200, or a 404 or 409 that says what to send first."""
        payload = io.BytesIO(json.dumps(body).encode())
        async with http.post(self._url + path, data=payload, headers=self._headers) as response:
            try:
                answer: dict[str, Any] = json.loads(await response.read())
            except ValueError:
                raise ProviderError(f"{self._url} is no search service: {response.status}") from None
        error = answer.get("error", {})
        if response.status == 200 or error.get("code") in {"unknown_tree", "missing_files"}:
            return response.status, answer
        if response.status == UNACCEPTABLE:
            raise InvalidArguments(error["message"])
        raise ProviderError(f"the search service refused with {response.status}: {error.get('message')}")

    def _inside(self, path: str | None) -> str:
        path = path or "."
        root = self._sandbox.root
        return path[len(root) :].lstrip("/") or "." if f"{path}/".startswith(f"{root}/") else path


async def contents(sandbox: Sandbox) -> dict[str, bytes]:
    """Return the files that may be searched: text files that are not ignored, large or secret."""
    paths = [path for path in await sandbox.files() if not is_cache(path)]
    rules = {path: await _read(sandbox, path) for path in paths if path.rpartition("/")[2] == GITIGNORE}
    ignored = Ignored(
        {path: data.decode(errors="replace") for path, data in rules.items() if data is not None}
    )
    read = {path: await _read(sandbox, path) for path in paths if path not in ignored and not is_secret(path)}
    return {path: data for path, data in read.items() if data is not None and _is_source(data)}


async def _read(sandbox: Sandbox, path: str) -> bytes | None:
    """Return the text; None when it cannot be read, as with a broken link, a pipe or a removed file."""
    with suppress(OSError, SandboxError):
        return await sandbox.read(path)
    return None


def _is_source(data: bytes) -> bool:
    return len(data) <= MAX_FILE_BYTES and b"\0" not in data


def content_hash(content: bytes) -> str:
    """Return git's id of the blob in a SHA-256 repository."""
    return hashlib.sha256(b"blob %d\0" % len(content) + content).hexdigest()


def tree_hash(manifest: Mapping[str, str]) -> str:
    """Return the hash of the sorted paths and content hashes, as the service computes it."""
    rows = (f"{path}\0{digest}\n".encode(errors="surrogatepass") for path, digest in sorted(manifest.items()))
    return hashlib.sha256(b"".join(rows)).hexdigest()


def _batches(files: Mapping[str, bytes], paths: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for path in paths:
        if batch and size + len(files[path]) > UPLOAD_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(path)
        size += len(files[path])
    if batch:
        yield batch


def shortened(line: str) -> str:
    """Return the line, cut where it is long, with the number of characters that are left out."""
    left = len(line) - SHOWN_CHARS
    return line if left <= 0 else f"{line[:SHOWN_CHARS]} [cut: {left} more characters]"


def cut_out(found: Mapping[str, Any], data: bytes) -> Hit:
    """Return the hit at a place (`path`, `first` and `last` line) of a file with this content."""
    first, last = found["first"], found["last"]
    lines = data.decode(errors="replace").replace("\r\n", "\n").split("\n")[first - 1 : last]
    text = "\n".join(map(shortened, lines))
    return Hit(path=meant(found["path"]), first=first, last=last, text=text)
