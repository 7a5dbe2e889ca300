"""A small server that speaks S3 and keeps its objects in files, so that a killed one has them when it starts
again: `python -m fuzz.bucket PORT FOLDER`.

It knows what `store/objects.py` asks for: creation under `If-None-Match: *`, reading, listing and deleting.
Signatures are not checked.
"""

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from email.utils import formatdate
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

ROOT = Path(__file__).parents[1]
PAGE = 100
"""The most objects of one answer to a listing."""
START_S = 60.0
NAMES = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
BUCKET = "weights"
KEY = re.compile("<Key>([^<]*)</Key>")


class Bucket(BaseHTTPRequestHandler):
    """One request. The name of a file is its key, quoted."""

    protocol_version = "HTTP/1.1"

    def __init__(self, folder: Path, *arguments: object) -> None:
        self._folder = folder
        super().__init__(*arguments)  # type: ignore[arg-type]

    @property
    def _file(self) -> Path:
        key = unquote(urlsplit(self.path).path.removeprefix(f"/{BUCKET}/"))
        return self._folder / quote(key, safe="")

    def do_PUT(self) -> None:
        """Write an object whole, or refuse what exists."""
        data = self.rfile.read(int(self.headers["content-length"]))
        marks = {
            name: value for name, value in self.headers.items() if name.lower().startswith("x-amz-meta-")
        }
        part = self._folder / f".{uuid.uuid4().hex}"
        part.write_bytes(json.dumps(marks).encode() + b"\n" + data)
        try:
            os.link(part, self._file)
        except FileExistsError:
            return self._refuse(412, "PreconditionFailed")
        finally:
            part.unlink()
        return self._reply(200, headers={"ETag": tag(data)})

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            return self._list(query.get("prefix", [""])[0], query.get("continuation-token", [""])[0])
        try:
            marks, _, data = self._file.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return self._refuse(404, "NoSuchKey")
        return self._reply(200, data, {**json.loads(marks), "ETag": tag(data)})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        """Delete the objects that the body names."""
        keys = KEY.findall(self.rfile.read(int(self.headers["content-length"])).decode())
        for key in keys:
            (self._folder / quote(unescape(key), safe="")).unlink(missing_ok=True)
        rows = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._reply(200, f"<DeleteResult>{rows}</DeleteResult>".encode())

    def _list(self, prefix: str, after: str) -> None:
        keys = sorted(unquote(path.name) for path in self._folder.iterdir() if not path.name.startswith("."))
        found = [key for key in keys if key.startswith(prefix) and key > after]
        page, rest = found[:PAGE], found[PAGE:]
        rows = "".join(map(self._row, page))
        more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if rest else ""
        cut = str(bool(rest)).lower()
        text = f"<ListBucketResult><IsTruncated>{cut}</IsTruncated>{more}{rows}</ListBucketResult>"
        self._reply(200, text.encode())

    def _row(self, key: str) -> str:
        try:
            data = (self._folder / quote(key, safe="")).read_bytes().partition(b"\n")[2]
        except FileNotFoundError:  # deleted meanwhile
            return ""
        return (
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(tag(data))}</ETag><Size>{len(data)}</Size></Contents>"
        )

    def _refuse(self, status: int, code: str) -> None:
        self._reply(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _reply(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        known = {"Last-Modified": formatdate(usegmt=True), "Content-Length": str(len(body))}
        for name, value in {**known, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def tag(data: bytes) -> str:
    return f'"{hashlib.sha256(data).hexdigest()[:32]}"'


class BucketServer:
    """The server in a process of its own; a context manager that starts and ends it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a client finds the server."""
        return {**NAMES, "AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT": f"http://127.0.0.1:{self._port}"}

    def start(self) -> None:
        """Start it, and return once it answers."""
        command = [sys.executable, "-m", "fuzz.bucket", str(self._port), str(self._folder)]
        self._process = subprocess.Popen(command, cwd=ROOT)
        until = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1.0).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def kill(self) -> None:
        """End it by `kill -9`; its objects stay."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


if __name__ == "__main__":
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), partial(Bucket, Path(sys.argv[2]))).serve_forever()
