"""The envelopes and errors between client and server."""

import struct
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.fleet.protocol import connect
from ostinato.sandbox import SandboxError, SandboxPathError, Unsupported
from ostinato.sandbox.base import ChangesError, EndedWithinError

OBJECTS = st.dictionaries(st.text(max_size=5), st.text() | st.integers() | st.none(), max_size=4)


async def pieces(data: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


@given(st.lists(OBJECTS, max_size=5), st.integers(1, 50))
async def test_messages_arrive_in_whatever_pieces_they_are_sent(
    sent: list[dict[str, object]], size: int
) -> None:
    data = b"".join(map(connect.pack, sent)) + connect.pack({}, connect.END)
    assert [each async for each in connect.messages(pieces(data, size))] == sent


@given(OBJECTS)
def test_a_request_is_one_envelope(sent: dict[str, object]) -> None:
    assert connect.unpack(connect.pack(sent)) == sent


@pytest.mark.parametrize(
    "body", [b"", b"\0\0", b"\0\0\0\0\x09{}", b"\x01\0\0\0\x02{}", b"\0\0\0\0\x01{", b"\0\0\0\0\x02[]"]
)
def test_a_body_that_is_not_an_envelope_is_refused(body: bytes) -> None:
    with pytest.raises(connect.ConnectError):
        connect.unpack(body)


async def test_a_stream_that_breaks_off_is_an_error() -> None:
    data = connect.pack({"a": 1})
    with pytest.raises(SandboxError, match="broke off"):
        _ = [each async for each in connect.messages(pieces(data, 3))]
    huge = struct.pack(">BI", 0, 1 << 31)
    with pytest.raises(SandboxError, match="not a sandbox server"):
        _ = [each async for each in connect.messages(pieces(huge, 5))]


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError("no such file"),
        IsADirectoryError("is a directory"),
        NotADirectoryError("not a directory"),
        BrokenPipeError("nobody reads"),
        SandboxPathError("leads out"),
        SandboxError("is dead"),
        Unsupported("process", "pause", "ns"),
    ],
)
def test_an_exception_arrives_as_it_was_raised(error: Exception) -> None:
    converted = connect.to_error(error)
    assert converted is not None
    received = connect.from_error(converted.body())
    assert isinstance(received, type(error)) and str(received) == str(error)


def test_a_bug_is_not_converted_to_a_response() -> None:
    assert connect.to_error(KeyError("x")) is None
    assert isinstance(connect.from_error({"code": 500, "message": "?"}), SandboxError)


@pytest.mark.parametrize("error", [ChangesError("too large"), EndedWithinError("it removed its repository")])
def test_what_the_code_in_a_sandbox_did_stays_its_fault(error: SandboxError) -> None:
    sent = connect.to_error(error)
    assert sent is not None
    assert type(connect.from_error(sent.body())) is type(error)
