"""The status of an error says whose fault it is: 4xx the client's, 503 the engine's.

Covers engine/http.py and web/secret.py.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
from tests.engine.toolbox import request
from tests.watchdog import watched

from ostinato.engine.base import EngineError, InvalidRequestError, PromptTooLongError
from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.types import GenerateRequest, to_json
from ostinato.web.secret import bearer

FAILURES = {
    "too long": PromptTooLongError("600 tokens"),
    "invalid": InvalidRequestError("temperature -1"),
    "failed": EngineError("a decode step failed"),
}


@pytest.fixture(autouse=True)
def awake() -> Iterator[None]:
    """No callback of the server may keep its loop: see `tests/watchdog.py`."""
    with watched():
        yield


async def policy(asked: GenerateRequest) -> tuple[int, ...]:
    raise FAILURES[asked.request_id]


class Unpausable(ScriptedEngine):
    async def pause(self) -> None:
        raise EngineError("vLLM went away")


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    running = await serve_scripted(Unpausable(policy))
    async with aiohttp.ClientSession(running.url) as opened:
        yield opened
    await running.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("why", "status"), [("too long", 400), ("invalid", 400), ("failed", 503)])
async def test_the_status_of_a_failure_says_whose_fault_it_is(
    session: aiohttp.ClientSession, why: str, status: int, stream: bool
) -> None:
    body: dict[str, Any] = to_json(request(1)) | {"request_id": why, "stream": stream}
    async with session.post("/generate", json=body) as response:
        error = (await response.json())["error"]
        assert (response.status, error["status"]) == (status, status)
        assert response.headers.get("Retry-After") == ("1" if status == 503 else None)
    assert (error["type"], error["message"]) == (type(FAILURES[why]).__name__, str(FAILURES[why]))


@pytest.fixture
async def guarded() -> AsyncIterator[aiohttp.ClientSession]:
    running = await serve_scripted(Unpausable(policy), secret="s3cret")
    async with aiohttp.ClientSession(running.url) as opened:
        yield opened
    await running.close()


@pytest.mark.parametrize("path", ["/generate", "/load", "/pause", "/resume", "/stats", "/no/such"])
@pytest.mark.parametrize("shown", ["", "Bearer ", "Bearer s3cre", "Bearer s3cret2", "s3cret", "Bearer \xff"])
async def test_a_caller_without_the_secret_is_refused(guarded, path: str, shown: str) -> None:
    headers = {"Authorization": shown, "Content-Type": "text/plain"}
    async with guarded.post(path, data=b"{}", headers=headers) as response:
        assert response.status == 401
        assert "OSTINATO_ENGINE_SECRET" in (await response.json())["error"]["message"]


async def test_a_caller_with_the_secret_is_served(guarded) -> None:
    async with guarded.post("/resume", headers=bearer("s3cret")) as response:
        assert await response.json() == {"paused": False}
    async with guarded.get("/healthz") as response:
        assert response.status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "evil.example"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ],
)
async def test_a_web_page_is_refused(guarded, headers: dict[str, str]) -> None:
    for path in ("/pause", "/healthz"):
        async with guarded.post(path, headers=headers | bearer("s3cret")) as response:
            assert (response.status, (await response.json())["error"]["type"]) == (403, "ForeignHostError")


async def test_an_engine_that_cannot_pause_responds_503(session: aiohttp.ClientSession) -> None:
    async with session.post("/pause") as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
        assert (await response.json())["error"]["message"] == "vLLM went away"
