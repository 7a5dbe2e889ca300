"""Services that are tiny modules, on each placement."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from fuzz.ray_nodes import three_nodes
from tests.databases import backend, locked, place, postgres

SERVER = """
import http.server, json, sys, tomllib
_, _, path, _, table = sys.argv
own = tomllib.load(open(path, "rb"))[table]
server = http.server.HTTPServer((own["host"], own["port"]), http.server.SimpleHTTPRequestHandler)
try:
    print(json.dumps({"ready": True, "port": server.server_port}), flush=True)
    server.serve_forever()
finally:
    print(table, "stopped", file=open(own["diary"], "a"))
"""
WRONG = "import sys; print('port 80 is taken', file=sys.stderr); sys.exit(2)"
STOPS = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of modules that every node of the cluster can import."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "placed_server.py").write_text(STOPS + SERVER)
    (folder / "placed_wrong.py").write_text(
        "import sys; print('port 80 is taken', file=sys.stderr); sys.exit(2)"
    )
    return folder


def paths(text: str | None) -> list[str]:
    return [path for path in (text or "").split(os.pathsep) if path]


@pytest.fixture(scope="session")
def cluster(modules: Path) -> Iterator[Any]:
    """Three nodes, which see the modules."""
    if find_spec("ray") is None:
        pytest.skip("ray is not installed: run `make test-ray`")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(modules), *map(os.path.abspath, paths(before))])
    with three_nodes() as started:
        yield started
    os.environ.pop("PYTHONPATH")
    if before is not None:
        os.environ["PYTHONPATH"] = before


__all__ = ["backend", "cluster", "locked", "modules", "place", "postgres"]
