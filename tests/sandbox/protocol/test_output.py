"""The end of a command's output is kept in bounded memory."""

from hypothesis import given
from hypothesis import strategies as st

from ostinato.sandbox.protocol.output import OutputTail


@given(st.lists(st.binary(max_size=50)), st.integers(1, 60))
def test_the_end_is_kept_and_the_rest_counted(parts: list[bytes], limit: int) -> None:
    tail = OutputTail(limit)
    for part in parts:
        tail.add(part)
    whole = b"".join(parts)
    kept = whole[-limit:].decode(errors="backslashreplace")
    dropped = max(len(whole) - limit, 0)
    assert tail.text() == (f"[{dropped} bytes left out]\n" if dropped else "") + kept


def test_a_limit_of_zero_keeps_nothing() -> None:
    tail = OutputTail(0)
    for piece in (b"a", b"bc" * 1000, b""):
        tail.add(piece)
    assert tail.text() == "[2001 bytes left out]\n"
