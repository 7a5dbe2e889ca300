"""A cluster with agent-sandbox, as far as its Python client speaks to one: a contract server.

It has the Kubernetes API with claims, which it checks against the published schema, the router, and the
runtime of the published example (v0.5.6: no shell, text output, files into existing folders alone). Sandboxes
are directories, and their commands are processes of this machine: only for tests.
"""

import asyncio
import datetime
import json
import shlex
import subprocess
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from aiohttp import web

CRD = yaml.safe_load(Path(__file__).with_name("sandboxclaims.yaml").read_text())
POOL, TOKEN, POD_IP = "coding", "right", "10.1.2.3"
_GROUP = "/apis/{group}/v1beta1/namespaces/{space}/"
_CLAIMS, _SANDBOXES = _GROUP + "sandboxclaims", _GROUP + "sandboxes"


def schema() -> dict[str, Any]:
    """Return the schema of a claim, which refuses fields that it does not name, as a strict API does."""
    (version,) = (each for each in CRD["spec"]["versions"] if each["name"] == "v1beta1")
    whole = _strict(version["schema"]["openAPIV3Schema"])
    return {**whole, "properties": {**whole["properties"], "metadata": {"type": "object"}}}


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _strict(each) for name, each in schema.items()}
    return {**made, "additionalProperties": False} if isinstance(made.get("properties"), dict) else made


class AgentSandboxCluster:
    """The servers; `claims` are those that exist, `asked` every path that was requested."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.claims: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.token = TOKEN
        self.runtime = True
        """False: what runs in the sandboxes does not respond."""

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 28)
        app.add_routes(
            [
                web.post(_CLAIMS, self.create),
                web.get(_CLAIMS, self.watch),
                web.delete(_CLAIMS + "/{name}", self.delete),
                web.get(_SANDBOXES + "/{name}", self.sandbox),
                web.post("/execute", self.execute),
                web.post("/upload", self.upload),
                web.get("/download/{path:.*}", self.download),
            ]
        )
        return app

    # --- the Kubernetes API ---

    def _permit(self, request: web.Request, group: str) -> None:
        self.asked.append(f"{request.method} {request.path.rpartition('/v1beta1')[2]}")
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            raise web.HTTPUnauthorized(text=json.dumps({"kind": "Status", "code": 401}))
        if request.match_info["group"] != group:
            raise web.HTTPNotFound

    async def create(self, request: web.Request) -> web.Response:
        self._permit(request, CRD["spec"]["group"])
        claim = await request.json()
        jsonschema.validate(claim, schema())
        name = claim["metadata"]["name"]
        assert claim["kind"] == CRD["spec"]["names"]["kind"]
        datetime.datetime.fromisoformat(claim["spec"]["lifecycle"]["shutdownTime"])
        assert claim["spec"]["lifecycle"]["shutdownPolicy"] == "Delete"
        claim["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "1"}
        self.claims[name] = claim
        (self.folder / f"pod-{name}").mkdir()
        return web.json_response(claim, status=201)

    async def watch(self, request: web.Request) -> web.StreamResponse:
        self._permit(request, CRD["spec"]["group"])
        name = request.query["fieldSelector"].removeprefix("metadata.name=")
        claim = self.claims[name]
        status = _ready(name) if claim["spec"]["warmPoolRef"]["name"] == POOL else _no_pool()
        jsonschema.validate({**claim, "status": status}, schema())
        response = web.StreamResponse()
        await response.prepare(request)
        event = {"type": "MODIFIED", "object": {**claim, "status": status}}
        await response.write(json.dumps(event).encode() + b"\n")
        return response

    async def delete(self, request: web.Request) -> web.Response:
        self._permit(request, CRD["spec"]["group"])
        if self.claims.pop(request.match_info["name"], None) is None:
            raise web.HTTPNotFound(text="{}")
        return web.json_response({"kind": "Status", "status": "Success"})

    async def sandbox(self, request: web.Request) -> web.Response:
        self._permit(request, "agents.x-k8s.io")
        return web.json_response({"status": {"podIPs": [POD_IP]}})

    # --- the router, and the runtime behind it ---

    def _base(self, request: web.Request) -> Path:
        """Return the base folder of the sandbox that the router's headers name."""
        headers = request.headers
        self.asked.append(f"{request.method} /{request.path.split('/')[1]}")
        assert headers["X-Sandbox-Port"] == "8888" and float(headers["X-Sandbox-Timeout"]) > 0
        assert headers["X-Sandbox-Namespace"] == "default" and headers["X-Sandbox-Pod-IP"] == POD_IP
        base = self.folder / headers["X-Sandbox-ID"]
        if not self.runtime or not base.is_dir():
            detail = f"Could not connect to the backend sandbox: {base.name}"
            raise web.HTTPBadGateway(text=json.dumps({"detail": detail}))
        return base

    async def execute(self, request: web.Request) -> web.Response:
        base, body = self._base(request), await request.json()
        assert body.keys() == {"command"}
        return web.json_response(await asyncio.to_thread(_execute, base, body["command"]))

    async def upload(self, request: web.Request) -> web.Response:
        base, part = self._base(request), await (await request.multipart()).next()
        path, data = base / part.filename, await part.read()
        try:
            path.write_bytes(data)
        except OSError as error:
            return web.json_response({"message": f"File upload failed: {error}"}, status=500)
        return web.json_response({"message": "uploaded"})

    async def download(self, request: web.Request) -> web.Response:
        path = self._base(request) / urllib.parse.unquote(request.match_info["path"])
        if not path.is_file():
            return web.json_response({"message": "File not found"}, status=404)
        return web.Response(body=path.read_bytes())


def _execute(base: Path, command: str) -> dict[str, Any]:
    try:
        words = shlex.split(command)
        done = subprocess.run(words, cwd=base, capture_output=True, text=True, check=False)
        return {"stdout": done.stdout, "stderr": done.stderr, "exit_code": done.returncode}
    except Exception as error:
        return {"stdout": "", "stderr": f"Failed to execute command: {error}", "exit_code": 1}


def _condition(status: str, reason: str, message: str) -> dict[str, Any]:
    at = "2026-08-20T00:00:00Z"
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at,
    }


def _ready(name: str) -> dict[str, Any]:
    return {
        "conditions": [_condition("True", "SandboxReady", "ready")],
        "sandbox": {"name": f"pod-{name}", "podIPs": [POD_IP]},
    }


def _no_pool() -> dict[str, Any]:
    return {"conditions": [_condition("False", "WarmPoolNotFound", "no such pool")]}


def kubeconfig(url: str, token: str = TOKEN) -> str:
    """Return a configuration of Kubernetes for the cluster."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )


@contextmanager
def serving(app: web.Application) -> Iterator[str]:
    """Yield the URL of a server that runs in a thread of its own, so that every event loop can talk to it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    runner = web.AppRunner(app, shutdown_timeout=1.0)

    async def start() -> str:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    try:
        yield asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
