"""Lines of any kind: each is a message, an answer that says what is wrong, or nothing."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.harness.frontends.acp import wire as module
from ostinato.harness.frontends.acp.wire import JsonRpcLines

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "method", "params", "result", "x"]), inner, max_size=4)
    ),
    max_leaves=8,
)


class Page:
    """A writer that keeps what is written."""

    def __init__(self) -> None:
        self.lines: list[dict] = []

    def write(self, data: bytes) -> None:
        self.lines += [json.loads(line) for line in data.splitlines()]

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        pass


async def read(data: bytes, limit: int = 2**16) -> tuple[list[dict], list[dict]]:
    """The messages that were received, and what was answered."""
    reader, page = asyncio.StreamReader(limit=limit), Page()
    reader.feed_data(data)
    reader.feed_eof()
    wire = JsonRpcLines(reader, page)
    messages = []
    while (message := await wire.receive()) is not None:
        messages.append(message)
    return messages, page.lines


@given(st.lists(JSON.map(json.dumps).map(str.encode) | st.binary(max_size=20), max_size=5))
def test_any_lines_are_received_or_answered(lines):
    messages, answers = asyncio.run(read(b"\n".join(line.replace(b"\n", b"") for line in lines)))
    assert all("method" in message or "id" in message for message in messages)
    assert all(answer["error"]["code"] in {-32700, -32600} for answer in answers)
    assert len(messages) + len(answers) <= len(lines)


async def test_the_last_line_needs_no_newline():
    assert (await read(b'{"method": "x"}'))[0] == [{"method": "x"}]


async def test_a_line_that_is_too_long_is_skipped():
    messages, answers = await read(b"x" * 200_000 + b'\n{"method": "x"}\n', limit=2**16)
    assert messages == [{"method": "x"}]
    assert [answer["error"]["code"] for answer in answers] == [-32600]


@pytest.mark.parametrize("line", [b"", b"\n", b"  \r\n"])
async def test_blank_lines_are_nothing(line):
    assert await read(line) == ([], [])


def test_the_limit_is_generous():
    assert module.MAX_LINE >= 32 * 2**20
