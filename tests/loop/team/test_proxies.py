"""Covers loop/team/texts.py: the written Caddyfile and nginx.conf, in the real programs where these are."""

import asyncio
import os
import re
import shutil
import socket
import ssl
import subprocess
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from tests.gateway.conftest import serving

from ostinato.loop.team.file import make_team
from ostinato.model.families import load_renderer
from ostinato.store import Store


def free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def certificate(folder: Path) -> tuple[Path, Path]:
    pem, key = folder / "fullchain.pem", folder / "privkey.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=models.example"]
    names = ["-addext", "subjectAltName=DNS:models.example"]
    command = ["openssl", *words, *names, "-keyout", str(key), "-out", str(pem)]
    subprocess.run(command, check=True, capture_output=True)
    return pem, key


def changed(text: str, **ports: int) -> str:
    """Return a written proxy with free ports in place of those of the gateway, the dashboard and TLS."""
    text = text.replace("127.0.0.1:8080", f"127.0.0.1:{ports['gateway']}")
    return text.replace("127.0.0.1:8081", f"127.0.0.1:{ports['dashboard']}")


@asynccontextmanager
async def program(*command: str, port: int, home: Path):
    """Run a proxy until the block ends, once it listens."""
    env = {**os.environ, "HOME": str(home)}
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stderr=PIPE, stdout=DEVNULL, env=env
    )
    assert process.stderr is not None
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                assert process.returncode is None, (await process.stderr.read()).decode()
                await asyncio.sleep(0.05)
        yield
    finally:
        process.terminate()
        await process.communicate()


async def shown(pem: Path, port: int, headers: dict[str, str]) -> dict[str, int]:
    """Return the status of each path behind the proxy, over TLS and under the team's own name."""
    trusted = ssl.create_default_context(cafile=str(pem))
    resolver = aiohttp.TCPConnector(ssl=trusted, resolver=Here())
    async with aiohttp.ClientSession(connector=resolver, headers=headers) as http:
        found = {}
        for path in ("/healthz", "/join", "/v1/models", "/"):
            async with http.get(f"https://models.example:{port}{path}", allow_redirects=False) as answer:
                found[path] = answer.status
        return found


class Here(aiohttp.abc.AbstractResolver):
    """A resolver for which every name is this machine."""

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET):
        return [
            {
                "hostname": host,
                "host": "127.0.0.1",
                "port": port,
                "family": socket.AF_INET,
                "proto": 0,
                "flags": 0,
            }
        ]

    async def close(self) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("proxy", ["caddy", "nginx"])
async def test_people_reach_gateway_and_dashboard_at_one_address(
    tmp_path: Path, model: Path, proxy: str
) -> None:
    if shutil.which(proxy) is None or shutil.which("openssl") is None:
        pytest.skip(f"{proxy} or openssl is not installed here")
    terms = {"address": "https://models.example", "people": 5, "context": 4096}
    make_team(tmp_path / "team.toml", engine="http://127.0.0.1:9", model="m", **terms)
    pem, key = certificate(tmp_path)
    store = Store.open(tmp_path / "store.db")
    async with serving(store, load_renderer(model), allowed_hosts=("models.example",)) as url:
        ports = {"gateway": int(url.rpartition(":")[2]), "dashboard": free()}
        port = free()
        if proxy == "caddy":
            text = changed((tmp_path / "Caddyfile").read_text(), **ports)
            text = text.replace("models.example {", f"models.example:{port} {{\n\ttls {pem} {key}", 1)
            (tmp_path / "Caddyfile").write_text(f"{{\n\tadmin off\n\tauto_https off\n}}\n{text}")
            command = ["caddy", "run", "--config", str(tmp_path / "Caddyfile"), "--adapter", "caddyfile"]
        else:
            text = changed((tmp_path / "nginx.conf").read_text(), **ports)
            text = text.replace("listen 443", f"listen 127.0.0.1:{port}")
            text = re.sub(r"/etc/letsencrypt/live/models.example", str(tmp_path), text)
            (tmp_path / "nginx.conf").write_text(text)
            paths = "".join(f"{name}_temp_path {tmp_path}/{name};" for name in TEMPORARY)
            whole = f"events {{}} http {{ access_log off; {paths} include {tmp_path}/nginx.conf; }}"
            (tmp_path / "whole.conf").write_text(f"pid {tmp_path}/pid; daemon off; {whole}")
            command = ["nginx", "-e", str(tmp_path / "errors"), "-c", str(tmp_path / "whole.conf")]
        async with program(*command, port=port, home=tmp_path):
            found = await shown(pem, port, {})
            with_origin = await shown(pem, port, {"Origin": f"https://models.example:{port}"})
    store.close()
    # Without a key 401, from the gateway; no dashboard runs here, so the rest is the proxy's own 502.
    assert found == with_origin == {"/healthz": 200, "/join": 200, "/v1/models": 401, "/": 502}


TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
