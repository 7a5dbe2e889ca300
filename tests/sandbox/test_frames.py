from hypothesis import given
from hypothesis import strategies as st

from ostinato.sandbox import frames


@given(st.dictionaries(st.text(), st.none() | st.binary(max_size=50)))
def test_files_survive_packing(files: dict[str, bytes | None]) -> None:
    table, body = frames.pack_files(files)
    assert frames.unpack_files(table, body) == files


def test_a_frame_says_its_lengths() -> None:
    frame = frames.pack({"op": "read"}, b"body")
    header, body = frames.lengths(frame[: frames.PREFIX])
    assert (header, body) == (len('{"op": "read"}'), 4)
    assert frame.endswith(b'{"op": "read"}body')
