"""Large requests are processed beside the event loop, which the watchdog of `conftest.py` checks."""

import asyncio
import io
import json
import threading
from typing import Any

import pytest

from ostinato.gateway.dialects.request import MOST_TEXT
from ostinato.gateway.offload import LARGE, offload

WORDS = "token=Abcdefg!, the quick brown fox "


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"])
async def test_a_long_prompt_keeps_nobody_waiting(path: str, http, gateway: str) -> None:
    text = WORDS * (900_000 // len(WORDS))
    body = {"model": "ostinato", "max_tokens": 4, "messages": [{"role": "user", "content": text}]}
    async with http.post(gateway + path, data=io.BytesIO(json.dumps(body).encode())) as response:
        assert response.status == 200, await response.text()


async def test_a_text_that_no_model_reads_is_refused_before_it_has_tokens(http, gateway: str) -> None:
    body = {"model": "ostinato", "messages": [{"role": "user", "content": "a" * (MOST_TEXT + 1)}]}
    async with http.post(
        gateway + "/v1/chat/completions", data=io.BytesIO(json.dumps(body).encode())
    ) as response:
        answer: Any = await response.json()
    assert (response.status, answer["error"]["code"]) == (400, "context_length_exceeded")


async def test_many_lines_keep_nobody_waiting(http, gateway: str) -> None:
    async with http.post(gateway + "/v1/events", data=io.BytesIO(b"ab\n" * 2_700_000)) as response:
        answer = await response.json()
    assert (response.status, len(answer["errors"])) == (422, 10_001)
    lines = [{"id": f"e{i}", "name": "session.start", "time": 1} for i in range(10_000)]
    data = "\n".join(map(json.dumps, lines)).encode()
    async with http.post(gateway + "/v1/events", data=io.BytesIO(data)) as response:
        assert (response.status, (await response.json())["accepted"]) == (200, 10_000)


async def test_a_hidden_secret_in_a_long_prompt_keeps_nobody_waiting(http, gateway: str, store) -> None:
    text = "the quick brown fox " * 40_000 + "password = 't1ger!Horse'"
    body = {"model": "ostinato", "messages": [{"role": "user", "content": text}]}
    async with http.post(
        gateway + "/v1/chat/completions",
        data=io.BytesIO(json.dumps(body).encode()),
        headers={"X-Session-Id": "s1"},
    ) as response:
        assert response.status == 200
    assert store.turns("s1")[0].untrainable == "secret redacted"


async def test_log_records_are_counted_before_they_fill_memory(http, gateway: str) -> None:
    inner = b"\x12\x00" * 400_000
    for tag in (0x12, 0x0A):
        size, length = len(inner), b""
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        inner = bytes([tag]) + length + bytes([size]) + inner
    headers = {"Content-Type": "application/x-protobuf"}
    async with http.post(gateway + "/v1/logs", data=io.BytesIO(inner), headers=headers) as response:
        assert response.status == 413
    async with http.post(
        gateway + "/v1/logs",
        data=io.BytesIO(b'{"resourceLogs":[' + b"{}," * 210_000 + b"{}]}"),
        headers={"Content-Type": "application/json"},
    ) as response:
        assert response.status == 413


async def test_small_work_is_done_at_once_and_large_work_in_a_thread() -> None:
    here = threading.get_ident()
    assert await offload(LARGE, threading.get_ident) == here
    assert await offload(LARGE + 1, threading.get_ident) != here
    with pytest.raises(ValueError, match="invalid literal"):
        await offload(LARGE + 1, int, "x")
    await asyncio.sleep(0)
