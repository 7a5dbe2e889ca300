"""Frames survive any cut of the stream, and invalid bytes are detected.

Covers sandbox/protocol/frames.py and sandbox/protocol/entries.py.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.sandbox.protocol import frames
from ostinato.sandbox.protocol.entries import KINDS, packed, unpacked

headers = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9), max_size=3)
sent = st.lists(st.tuples(headers, st.binary(max_size=60)), max_size=5)


paths = st.text(st.characters(exclude_characters="\0") | st.sampled_from("\udcff\ud800"))


kept = st.builds(lambda kind, data: kind(data), st.sampled_from([*KINDS.values()]), st.binary())
contents = st.none() | kept


@given(st.dictionaries(paths, contents))
def test_files_survive_packing(files: dict[str, bytes | None]) -> None:
    for again in (
        frames.unpack_files(frames.pack_files(files)),
        {path: unpacked(packed(data)) for path, data in files.items()},
    ):
        assert again == files
        assert [*map(type, again.values())] == [*map(type, files.values())]


@given(st.lists(paths))
def test_names_survive_packing(names: list[str]) -> None:
    assert frames.unpack_names(frames.pack_names(names)) == names


@given(st.binary(max_size=80))
def test_any_bytes_are_files_and_names_or_a_frame_error(body: bytes) -> None:
    for unpack, pack in ((frames.unpack_files, frames.pack_files), (frames.unpack_names, frames.pack_names)):
        try:
            found = unpack(body)  # type: ignore[operator]
        except frames.FrameError:
            continue
        assert unpack(pack(found)) == found  # type: ignore[operator]


def read(reader: frames.FrameReader, data: bytes, cut: int) -> list[frames.Frame]:
    found = []
    for start in range(0, len(data), cut):
        reader.feed(data[start : start + cut])
        while (frame := reader.next()) is not None:
            found.append(frame)
    return found


@given(sent, st.integers(1, 40))
def test_frames_come_out_as_they_went_in(these: list[frames.Frame], cut: int) -> None:
    data = b"".join(frames.pack(*each) for each in these)
    assert read(frames.FrameReader(), data, cut) == these


def test_nonsense_is_an_error() -> None:
    reader = frames.FrameReader()
    reader.feed(b"login: \r\n" * 3)
    with pytest.raises(frames.FrameError, match="not a frame"):
        reader.next()
    reader = frames.FrameReader()
    reader.feed(frames.MAGIC + b"\xff" * 8)
    with pytest.raises(frames.FrameError):
        reader.next()
