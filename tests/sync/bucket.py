"""A real S3-speaking server in a process of its own: `moto`, which honours `If-None-Match: *`.

It looks and writes in two steps, so that two who write at once can both be told that they were first: here
writes come one after another, as S3 promises.
"""

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
SERVER = """
import sys, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

application, one_at_a_time = DomainDispatcherApplication(create_backend_app), threading.Lock()

def answer(environ, start_response):
    if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
        return application(environ, start_response)
    with one_at_a_time:
        return application(environ, start_response)

run_simple("127.0.0.1", int(sys.argv[1]), answer, threaded=True, request_handler=MotoRequestHandler)
"""


@contextmanager
def s3_server() -> Iterator[str]:
    """Yield the address of a server that responds and has a bucket `NAME`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-W", "ignore", "-c", SERVER, str(port)]
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
