"""A bucket that throttles, loses its answers or lets credentials expire, behind a server that speaks S3.

Covers store/objects.py, with tests/store/test_objects.py and tests/sync/test_s3.py.
"""

import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ostinato.store import AlreadyExists, Objects, ObjectsError
from ostinato.store import objects as objects_module

REFUSALS = {
    "SlowDown": (503, "Reduce your request rate"),
    "ExpiredToken": (400, "The provided token has expired"),
    "AccessDenied": (403, "Access Denied"),
    "InternalError": (500, "We encountered an internal error"),
    "RequestTimeTooSkewed": (
        403,
        "The difference between the request time and the current time is too large.",
    ),
}
MOST_SKEW_S = 900
"""The difference of clocks that S3 accepts."""


class Bucket(BaseHTTPRequestHandler):
    """A bucket in memory. `plan` says what becomes of the next writes: a refusal, `lost` for one that is done
    and answered with an error, `cut` for one that is done and not answered at all."""

    protocol_version = "HTTP/1.1"
    ahead_s = 0.0
    """How far the clock of the bucket is ahead of that of this machine."""
    plan: list[str]
    held: dict[str, tuple[bytes, dict[str, str]]]
    users: list[str]

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        self.users.append(self.headers["authorization"].partition("Credential=")[2].partition("/")[0])
        step = self.plan.pop(0) if self.plan else ""
        signed = datetime.strptime(self.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if abs((datetime.now(UTC) - signed).total_seconds() + self.ahead_s) > MOST_SKEW_S:
            return self.refuse("RequestTimeTooSkewed")
        if step in REFUSALS:
            return self.refuse(step)
        if self.path in self.held:
            return self.reply(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        assert self.headers["if-none-match"] == "*"
        marks = {
            name: value for name, value in self.headers.items() if name.lower().startswith("x-amz-meta-")
        }
        self.held[self.path] = data, marks
        if step == "lost":
            return self.refuse("InternalError")
        if step == "cut":
            self.close_connection = True
            return None
        return self.reply(200)

    def do_GET(self) -> None:
        data, marks = self.held[self.path]
        self.reply(200, data, marks)

    def do_HEAD(self) -> None:
        self.do_GET()

    def refuse(self, code: str) -> None:
        status, message = REFUSALS[code]
        self.reply(status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode())

    def reply(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        known = {"ETag": '"a"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}
        for name, value in {**known, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Bucket]]:
    """A running bucket that the environment names, with keys."""
    handler = type("OwnBucket", (Bucket,), {"plan": [], "held": {}, "users": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    yield handler
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("trouble", ["SlowDown", "InternalError", "lost", "cut"])
def test_an_object_is_created_once_whatever_the_bucket_answers(bucket: type[Bucket], trouble: str) -> None:
    objects = Objects.open("s3://weights/run")
    bucket.plan[:] = [trouble]
    objects.create("a", b"1")
    assert (objects.get("a"), len(bucket.users)) == (b"1", 2)
    bucket.plan[:] = [trouble]
    with pytest.raises(AlreadyExists):
        objects.create("a", b"1")


def test_a_bucket_that_fails_many_times_is_still_asked(bucket: type[Bucket]) -> None:
    bucket.plan[:] = ["InternalError"] * 14
    objects = Objects.open("s3://weights/run")
    objects.create("a", b"1")
    assert (objects.get("a"), len(bucket.users)) == (b"1", 15)


def test_a_bucket_that_throttles_without_end_is_given_up_with_its_reason(
    bucket: type[Bucket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(objects_module.RETRIES, "max_retries", 2)
    bucket.plan[:] = ["SlowDown"] * 9
    with pytest.raises(ObjectsError, match=r"SlowDown.*: the bucket throttled for longer"):
        Objects.open("s3://weights/run").create("a", b"1")
    assert len(bucket.users) == 3 and not bucket.held


@pytest.mark.parametrize(
    ("code", "advice"), [("ExpiredToken", "renew them"), ("AccessDenied", "read, write")]
)
def test_credentials_that_do_not_do_are_named_at_once(bucket: type[Bucket], code: str, advice: str) -> None:
    bucket.plan[:] = [code]
    with pytest.raises(ObjectsError, match=f"s3://weights/run: a: .*: .*{advice}"):
        Objects.open("s3://weights/run").create("a", b"1")
    assert len(bucket.users) == 1


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
def test_a_clock_that_is_wrong_by_more_than_a_bucket_accepts_is_named_at_once(
    bucket: type[Bucket], ahead_s: float
) -> None:
    bucket.ahead_s = ahead_s
    with pytest.raises(ObjectsError) as caught:
        Objects.open("s3://weights/run").create("a", b"1")
    said = str(caught.value)
    assert said.startswith("s3://weights/run: a: ") and "RequestTimeTooSkewed" in said, said
    assert "more than 15 minutes from the bucket's" in said and "timedatectl" in said, said
    assert len(bucket.users) == 1 and not bucket.held


@pytest.mark.parametrize("ahead_s", [-600.0, 600.0])
def test_clocks_ten_minutes_apart_do_no_harm(bucket: type[Bucket], ahead_s: float) -> None:
    bucket.ahead_s = ahead_s
    objects = Objects.open("s3://weights/run")
    objects.create("a", b"1")
    assert objects.get("a") == b"1"
    with pytest.raises(AlreadyExists):
        objects.create("a", b"1")


def test_a_profile_renews_its_credentials(
    bucket: type[Bucket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("boto3", reason="boto3 is not installed: pip install 'ostinato[s3]'")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    answer = {"Version": 1, "SecretAccessKey": "s", "SessionToken": "t"}
    answer["Expiration"] = (datetime.now(UTC) + timedelta(seconds=60)).isoformat()
    program = (
        "import json, pathlib, sys\n"
        "calls = pathlib.Path(sys.argv[1])\n"
        "with calls.open('a') as file: file.write('x')\n"
        f"print(json.dumps({answer!r} | {{'AccessKeyId': f'key{{len(calls.read_text())}}'}}))\n"
    )
    (tmp_path / "keys.py").write_text(program)
    command = f"{sys.executable} {tmp_path / 'keys.py'} {tmp_path / 'calls'}"
    (tmp_path / "config").write_text(f"[profile cluster]\ncredential_process = {command}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "cluster")
    monkeypatch.setattr(objects_module, "ASKED_AGAIN", timedelta(0))
    objects = Objects.open("s3://weights/run")
    objects.create("a", b"1")
    objects.create("b", b"2")
    assert len(set(bucket.users)) == 2 and set(bucket.users) <= {f"key{n}" for n in range(1, 9)}
    monkeypatch.setenv("AWS_PROFILE", "nowhere")
    with pytest.raises(ObjectsError, match="the profile 'nowhere' gives no credentials"):
        Objects.open("s3://weights/run")
