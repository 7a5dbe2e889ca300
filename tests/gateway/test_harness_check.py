import json
import logging
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from ostinato.gateway.harness_check import HarnessMiddleware, trained_under


def client(trained: str) -> TestClient:
    async def ok(_):
        return PlainTextResponse("ok")

    return TestClient(HarnessMiddleware(Starlette(routes=[Route("/", ok)]), trained))


def test_another_harness_is_marked_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    http = client("9f")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            reply = http.get("/", headers={"X-Harness-Hash": "3c"})
            assert reply.text == "ok"
            assert reply.headers["x-ostinato-harness-mismatch"] == "9f"
    (record,) = caplog.records
    assert record.getMessage().startswith("served under harness '3c', trained under 9f")


@pytest.mark.parametrize(("trained", "asked"), [("9f", "9f"), ("9f", None), ("", "3c")])
def test_the_rest_passes(trained: str, asked: str | None, caplog: pytest.LogCaptureFixture) -> None:
    headers = {"X-Harness-Hash": asked} if asked else {}
    assert "x-ostinato-harness-mismatch" not in client(trained).get("/", headers=headers).headers
    assert not caplog.records


def test_a_checkpoint_names_the_harness_of_its_training(tmp_path: Path) -> None:
    assert trained_under(tmp_path) == ""
    meta = tmp_path / "ostinato.json"
    meta.write_text(json.dumps({"version": 1, "harness": "9f"}))
    assert trained_under(tmp_path) == "9f"
    meta.write_text("{")
    with pytest.raises(OSError, match=r"ostinato\.json cannot be read"):
        trained_under(tmp_path)
