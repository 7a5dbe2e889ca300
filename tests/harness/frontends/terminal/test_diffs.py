"""Diffs: numbers, signs and the colours of the language."""

from ostinato.harness.conversation import Edit
from ostinato.harness.frontends.terminal.diffs import diff_of, shown_diff


def test_a_line_has_its_number_its_sign_and_the_colours_of_its_language() -> None:
    edit = Edit(path="a.py", before=b"x = 1\ny = 2\n", after=b"x = 1\nreturn 'text'\n")
    shown = shown_diff(diff_of(edit), dark=True)
    assert "2 - y = 2" in shown.plain and "2 + return 'text'" in shown.plain
    at = shown.plain.index("return")
    keyword, text = (
        {str(span.style) for span in shown.spans if span.start <= place < span.end}
        for place in (at, at + len("return '"))
    )
    assert keyword != text


def test_bytes_that_are_no_text_are_said_to_be_none() -> None:
    assert "not a text" in diff_of(Edit(path="a.bin", before=None, after=b"\xff\xfe"))
