"""The file calls of envd, E2B's agent: the file tree of a sandbox, downloads and uploads.

Only the repository of a sandbox is shown: relative paths start there, and absolute ones must lie in it.
"""

import posixpath
import shlex
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ostinato.fleet.protocol.connect import ConnectError
from ostinato.fleet.server import bodies
from ostinato.fleet.server.envd import refusal
from ostinato.fleet.server.sandboxes import HostedSandbox
from ostinato.sandbox.base import MAX_FILE_BYTES, SandboxPathError
from ostinato.sandbox.protocol.entries import packed

Message = Mapping[str, Any]
DEEPEST = 16
SCRIPT_S = 60.0
_TYPES = {"f": "FILE_TYPE_FILE", "d": "FILE_TYPE_DIRECTORY", "l": "FILE_TYPE_SYMLINK"}
_FORMAT = r"%y\0%s\0%m\0%M\0%u\0%g\0%T@\0%l\0%p\0"
_FIELDS = 9
_MISSING, _NO_DIRECTORY, _THERE = 44, 45, 46


def inside(hosted: HostedSandbox, path: object) -> str:
    """Return the absolute path in the sandbox. Raise SandboxPathError when it leads out of the repository."""
    root = hosted.sandbox.root
    if not isinstance(path, str) or not path or "\0" in path:
        raise SandboxPathError(f"{path!r} is not a path")
    full = posixpath.normpath(posixpath.join(root, path))
    if full != root and not full.startswith(root.rstrip("/") + "/"):
        raise SandboxPathError(f"{path!r} leads out of the repository at {root}")
    return full


async def _sh(hosted: HostedSandbox, script: str, path: str) -> str:
    """Return the output of a small script. Raise FileNotFoundError and the like by its exit code."""
    process = await hosted.sandbox.start(script, timeout_s=SCRIPT_S)
    output = b"".join([chunk async for chunk in process.output()]).decode(errors="surrogateescape")
    result = await process.wait()
    match result.exit_code:
        case 0:
            return output
        case code if code == _MISSING:
            raise FileNotFoundError(2, "no such file or directory", path)
        case code if code == _NO_DIRECTORY:
            raise NotADirectoryError(20, "not a directory", path)
        case code if code == _THERE:
            raise ConnectError("already_exists", f"{path!r} is there already")
    raise ConnectError("internal", f"{path!r}: {output.strip() or result.exit_code}")


def _entries(text: str) -> list[dict[str, Any]]:
    parts = text.split("\0")[:-1]
    return [_entry(parts[at : at + _FIELDS]) for at in range(0, len(parts), _FIELDS)]


def _entry(fields: list[str]) -> dict[str, Any]:
    kind, size, mode, shown, owner, group, changed, link, path = fields
    entry = {
        "name": posixpath.basename(path),
        "type": _TYPES.get(kind, "FILE_TYPE_UNSPECIFIED"),
        "path": path,
        "size": size,
        "mode": int(mode, 8),
        "permissions": shown,
        "owner": owner,
        "group": group,
        "modifiedTime": datetime.fromtimestamp(float(changed), UTC).isoformat().replace("+00:00", "Z"),
    }
    return {**entry, "symlinkTarget": link, "isSymlink": True} if link else entry


async def stat(hosted: HostedSandbox, message: Message) -> Message:
    return {"entry": await _stat(hosted, inside(hosted, message.get("path")))}


async def _stat(hosted: HostedSandbox, path: str) -> dict[str, Any]:
    name = shlex.quote(path)
    text = await _sh(
        hosted,
        f"[ -e {name} ] || [ -L {name} ] || exit {_MISSING}; find {name} -maxdepth 0 -printf '{_FORMAT}'",
        path,
    )
    return _entries(text)[0]


async def list_dir(hosted: HostedSandbox, message: Message) -> Message:
    path = inside(hosted, message.get("path"))
    depth = min(max(int(message.get("depth") or 1), 1), DEEPEST)
    name = shlex.quote(path)
    text = await _sh(
        hosted,
        f"[ -e {name} ] || exit {_MISSING}; [ -d {name} ] || exit {_NO_DIRECTORY}; "
        f"find {name} -mindepth 1 -maxdepth {depth} -printf '{_FORMAT}'",
        path,
    )
    return {"entries": sorted(_entries(text), key=lambda entry: str(entry["path"]))}


async def make_dir(hosted: HostedSandbox, message: Message) -> Message:
    path = inside(hosted, message.get("path"))
    name = shlex.quote(path)
    await _sh(hosted, f"[ -e {name} ] && exit {_THERE}; mkdir -p {name}", path)
    return {"entry": await _stat(hosted, path)}


async def move(hosted: HostedSandbox, message: Message) -> Message:
    source, target = (inside(hosted, message.get(name)) for name in ("source", "destination"))
    a, b, above = (shlex.quote(each) for each in (source, target, posixpath.dirname(target)))
    await _sh(
        hosted, f"[ -e {a} ] || [ -L {a} ] || exit {_MISSING}; mkdir -p {above} && mv -T {a} {b}", source
    )
    return {"entry": await _stat(hosted, target)}


async def remove(hosted: HostedSandbox, message: Message) -> Message:
    path = inside(hosted, message.get("path"))
    if path == hosted.sandbox.root:
        raise SandboxPathError("the repository itself stays")
    name = shlex.quote(path)
    await _sh(hosted, f"[ -e {name} ] || [ -L {name} ] || exit {_MISSING}; rm -rf {name}", path)
    return {}


async def download(hosted: HostedSandbox, request: Request) -> Response:
    """GET /files?path=…"""
    try:
        data = await hosted.sandbox.read(inside(hosted, request.query_params.get("path")))
        return Response(data, media_type="application/octet-stream")
    except Exception as error:
        return _refused(error)


async def upload(hosted: HostedSandbox, request: Request) -> Response:
    """POST /files: one file as plain bytes, or several as a form."""
    try:
        written = []
        for path, data in await _uploaded(request):
            full = inside(hosted, path)
            await hosted.sandbox.write(full, data)
            written.append({"name": posixpath.basename(full), "type": "file", "path": full})
        return JSONResponse(written)
    except Exception as error:
        return _refused(error)


def _refused(error: Exception) -> Response:
    body, status = refusal(error)
    return JSONResponse({**body, "code": status, "error_code": body.get("kind", "")}, status)


async def _uploaded(request: Request) -> list[tuple[str | None, bytes]]:
    body, path = await _body(request), request.query_params.get("path")
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    if kind.strip() != "multipart/form-data":
        return [(path, body)]
    boundary = parameters.partition("boundary=")[2].strip().strip('"')
    if not boundary:
        raise ConnectError("invalid_argument", "a form without a boundary")
    parts = _parts(body, boundary.encode())
    return [(path, parts[0][1])] if path and len(parts) == 1 else list(parts)


async def _body(request: Request) -> bytes:
    body = await bodies.whole(request, bodies.FILES)
    match request.headers.get("content-encoding", "identity"):
        case "identity":
            return body
        case "gzip":
            return _unzipped(body)
    raise ConnectError("unimplemented", "send files plain or gzipped")


def _unzipped(body: bytes) -> bytes:
    inflater = zlib.decompressobj(wbits=31)
    try:
        data = inflater.decompress(body, MAX_FILE_BYTES + 1)
    except zlib.error as error:
        raise ConnectError("invalid_argument", f"not gzip: {error}") from error
    if len(data) > MAX_FILE_BYTES or not inflater.eof:
        raise ConnectError("invalid_argument", f"cut off, or more than {MAX_FILE_BYTES} bytes unpacked")
    return data


def _parts(body: bytes, boundary: bytes) -> list[tuple[str, bytes]]:
    """Return the file name and content of each part of a form (RFC 7578). Raises ConnectError."""
    parts = []
    for part in (b"\r\n" + body).split(b"\r\n--" + boundary)[1:-1]:
        head, _, data = part.partition(b"\r\n\r\n")
        name = head.partition(b'filename="')[2].partition(b'"')[0]
        if not name:
            raise ConnectError("invalid_argument", "a part of the form is not a file")
        parts.append((name.decode(errors="replace").replace("%22", '"'), data))
    if not parts:
        raise ConnectError("invalid_argument", "no file in the form")
    return parts


# --- our own call: the tree as a whole ----------------------------------------------------------------------


async def tree(hosted: HostedSandbox, message: Message) -> Message:
    """Handle ostinato.Tree/Read, where `of` is "files", "hash", "changes", or "names" of a directory."""
    match message.get("of"):
        case "files":
            return {"files": await hosted.sandbox.files()}
        case "hash":
            return {"hash": await hosted.sandbox.tree_hash()}
        case "names":
            return {"names": await hosted.sandbox.list(str(message.get("path", ".")))}
        case "changes":
            changes = await hosted.sandbox.changes()
            return {"changes": {path: packed(data) for path, data in changes.items()}}
    raise ConnectError("invalid_argument", f"a tree has no {message.get('of')!r}")
