"""Semantic search for a session: the sandbox's files as they are now, asked of the service over HTTP.

::

    sandbox's files ─► manifest {path: hash} ─► service: what is missing? ─► those contents ─► query ─► hits

The same in production and practice: one tree, one answer. The service gives places; the text is cut out here.
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
from ostinato.harness.providers.ignored_files import GITIGNORE, Ignored, is_cache, is_secret
from ostinato.sandbox.base import Sandbox, SandboxError

MAX_FILE_BYTES = 2**20
UPLOAD_BYTES = 4 * 2**20
SHOWN_CHARS = 200
"""Of each line of a hit."""
ATTEMPTS = 3
TIMEOUT = aiohttp.ClientTimeout(total=120, sock_connect=5)
NOT_FOUND, CONFLICT, UNACCEPTABLE = 404, 409, 422


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAt:
    """A search service and the key to ask it with.

    >>> SearchAt(url="http://127.0.0.1:8090", key="k").url
    'http://127.0.0.1:8090'
    """

    url: str
    key: str
    http: aiohttp.ClientSession | None = None
    """Of whoever asks often, theirs to close."""

    def of(self, sandbox: Sandbox) -> "SearchService":
        """What an agent in that sandbox is given: the same in production and practice."""
        return SearchService(self.url, self.key, sandbox, self.http)


class SearchService:
    """The files of one sandbox behind one search service. Holds nothing between calls.

    `http` is the caller's to close; without it each search opens its own connection.
    """

    def __init__(
        self, url: str, key: str, sandbox: Sandbox, http: aiohttp.ClientSession | None = None
    ) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._sandbox = sandbox
        self._http = http

    async def search(self, query: str, *, path: str | None, k: int) -> Sequence[Hit]:
        """The `k` closest parts, best first. Raises InvalidArguments, ProviderError."""
        files = await contents(self._sandbox)
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
        asked = {"tree": tree_hash(manifest), "query": query, "path": path, "k": k}
        for _ in range(ATTEMPTS):
            status, answer = await self._post(http, "/v1/search", asked)
            if status == NOT_FOUND:
                _, registered = await self._post(http, "/v1/search/trees", {"files": manifest})
                await self._upload(http, files, registered["missing"])
            elif status == CONFLICT:
                await self._upload(http, files, answer["error"]["missing"])
            else:
                return [_hit(found, files[found["path"]]) for found in answer["hits"]]
        raise ProviderError("the search service forgets what it is told: is its disk full?")

    async def _upload(
        self, http: aiohttp.ClientSession, files: Mapping[str, bytes], paths: list[str]
    ) -> None:
        for batch in _batches(files, paths):
            body = [{"path": path, "content": base64.b64encode(files[path]).decode()} for path in batch]
            await self._post(http, "/v1/search/files", {"files": body})

    async def _post(self, http: aiohttp.ClientSession, path: str, body: object) -> tuple[int, dict[str, Any]]:
        """Status and answer: 200, or a 404 or 409 that says what to send first."""
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
    """What may be searched: text files of a repository that are not ignored, large or secret."""
    paths = [path for path in await sandbox.files() if not is_cache(path)]
    rules = {path: await _read(sandbox, path) for path in paths if path.rpartition("/")[2] == GITIGNORE}
    ignored = Ignored(
        {path: data.decode(errors="replace") for path, data in rules.items() if data is not None}
    )
    read = {path: await _read(sandbox, path) for path in paths if path not in ignored and not is_secret(path)}
    return {path: data for path, data in read.items() if data is not None and _is_source(data)}


async def _read(sandbox: Sandbox, path: str) -> bytes | None:
    """None for what cannot be read: a broken link, a pipe, a file that went away."""
    with suppress(OSError, SandboxError):
        return await sandbox.read(path)
    return None


def _is_source(data: bytes) -> bool:
    return len(data) <= MAX_FILE_BYTES and b"\0" not in data


def content_hash(content: bytes) -> str:
    """Git's id of a blob in a SHA-256 repository."""
    return hashlib.sha256(b"blob %d\0" % len(content) + content).hexdigest()


def tree_hash(manifest: Mapping[str, str]) -> str:
    """As the service computes it: of the sorted paths and content hashes."""
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


def _hit(found: Mapping[str, Any], data: bytes) -> Hit:
    first, last = found["first"], found["last"]
    lines = data.decode(errors="replace").replace("\r\n", "\n").split("\n")[first - 1 : last]
    text = "\n".join(line[:SHOWN_CHARS] for line in lines)
    return Hit(path=found["path"], first=first, last=last, text=text)
