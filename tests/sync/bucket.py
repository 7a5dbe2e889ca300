"""A real S3-speaking server in a process of its own: `moto`, which honours `If-None-Match: *`."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

NAME = "weights-bucket"
SETTINGS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


@contextmanager
def s3_server() -> Iterator[str]:
    """Gives its address once it answers and has a bucket `NAME`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        command, stdout=quiet, stderr=quiet, env={**os.environ, "MOTO_S3_DEFAULT_MAX_KEYS": "7"}
    ) as server:
        try:
            _make_bucket(url, server)
            yield url
        finally:
            server.kill()


def _make_bucket(url: str, server: "subprocess.Popen[bytes]") -> None:
    request = urllib.request.Request(f"{url}/{NAME}", method="PUT")
    while True:
        try:
            with urllib.request.urlopen(request, timeout=10):
                return
        except OSError:
            if server.poll() is not None:
                raise
            time.sleep(0.1)
