"""A server of E2B's protocol, as far as its Python client speaks to one for us: a contract server.

It has the control calls that create and end a sandbox, and of envd, the agent in a sandbox, the start of a
process and the transfer of files. Sandboxes are directories, and their commands are processes of this
machine: only for tests. The shapes are those of e2b 2.63 and of connectrpc.com/docs/protocol: a message of a
stream has five bytes in front, its flags and its length.
"""

import asyncio
import base64
import json
import struct
import subprocess
from pathlib import Path
from typing import Any

from aiohttp import BodyPartReader, web

KEY, TEMPLATE, END = "right", "base", 0x02


class E2bServer:
    """The server; `sandboxes` are those that exist, with the request that each was created by."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sandboxes: dict[str, dict[str, Any]] = {}
        self.envd = True
        """False: what runs in the sandboxes does not respond."""
        self._made = 0

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 28)
        app.add_routes(
            [
                web.post("/v2/sandboxes", self.create),
                web.delete("/sandboxes/{id}", self.kill),
                web.post("/process.Process/Start", self.start),
                web.post("/files", self.upload),
                web.get("/files", self.download),
                web.get("/health", self.health),
            ]
        )
        return app

    # --- the control calls ---

    def _permit(self, request: web.Request) -> None:
        if request.headers.get("X-API-Key") != KEY:
            raise _refused(web.HTTPUnauthorized, "no such key")

    async def create(self, request: web.Request) -> web.Response:
        self._permit(request)
        body = await request.json()
        if body["templateID"] != TEMPLATE:
            raise _refused(web.HTTPNotFound, f"there is no template {body['templateID']}")
        self._made += 1
        name = f"i{self._made}"
        self.sandboxes[name] = body
        (self.folder / name).mkdir()
        made = {"templateID": TEMPLATE, "sandboxID": name, "clientID": "c", "envdVersion": "0.5.7"}
        return web.json_response(made | {"envdAccessToken": f"token-{name}"}, status=201)

    async def kill(self, request: web.Request) -> web.Response:
        self._permit(request)
        if self.sandboxes.pop(request.match_info["id"], None) is None:
            raise _refused(web.HTTPNotFound, "there is no such sandbox")
        return web.Response(status=204)

    # --- envd, behind E2B's proxy ---

    def _base(self, request: web.Request) -> Path:
        """Return the folder of the sandbox that the proxy's header names."""
        name = request.headers["E2b-Sandbox-Id"]
        assert request.headers["X-Access-Token"] == f"token-{name}"
        if not self.envd or name not in self.sandboxes:
            gone = {"sandboxId": name, "message": "The sandbox was not found", "code": 502}
            raise web.HTTPBadGateway(text=json.dumps(gone), content_type="application/json")
        return self.folder / name

    async def health(self, request: web.Request) -> web.Response:
        self._base(request)
        return web.Response(status=204)

    async def start(self, request: web.Request) -> web.Response:
        """Respond with the events of a command once it has ended."""
        base, message = self._base(request), (await request.read())[5:]
        process = json.loads(message)["process"]
        words = [process["cmd"], *process["args"]]
        within_s = int(request.headers["Connect-Timeout-Ms"]) / 1000
        try:
            done = await asyncio.to_thread(_execute, words, base, within_s)
        except subprocess.TimeoutExpired as error:
            failed = {"error": {"code": "deadline_exceeded", "message": str(error)}}
            return _stream((0, {"event": {"start": {"pid": 1}}}), (END, failed))
        data = {"stdout": done.stdout, "stderr": done.stderr}
        texts = {name: base64.b64encode(text).decode() for name, text in data.items() if text}
        events = [{"start": {"pid": 1}}, *({"data": {name: text}} for name, text in texts.items())]
        events.append({"end": {"exitCode": done.returncode, "exited": True, "status": "exited"}})
        return _stream(*((0, {"event": event}) for event in events), (END, {}))

    async def upload(self, request: web.Request) -> web.Response:
        path = self._base(request) / request.query["path"]
        if request.content_type == "application/octet-stream":
            data = await request.read()
        else:
            part = await (await request.multipart()).next()
            assert isinstance(part, BodyPartReader) and part.name == "file"
            data = bytes(await part.read())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return web.json_response([{"name": path.name, "type": "file", "path": str(path)}])

    async def download(self, request: web.Request) -> web.Response:
        path = self._base(request) / request.query["path"]
        if not path.is_file():
            raise _refused(web.HTTPNotFound, f"path '{path}' does not exist")
        return web.Response(body=path.read_bytes(), content_type="application/octet-stream")


def _execute(words: list[str], base: Path, within_s: float) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(words, cwd=base, capture_output=True, timeout=within_s, check=False)


def _stream(*messages: tuple[int, dict[str, Any]]) -> web.Response:
    packed = [(flags, json.dumps(message).encode()) for flags, message in messages]
    body = b"".join(struct.pack(">BI", flags, len(text)) + text for flags, text in packed)
    return web.Response(body=body, content_type="application/connect+json")


def _refused(kind: type[web.HTTPException], message: str) -> web.HTTPException:
    code = kind.status_code
    return kind(text=json.dumps({"code": code, "message": message}), content_type="application/json")
