"""Files of every encoding and newline, through every way in which a tool changes text."""

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ostinato.harness.errors import UnexpectedEnvironment
from ostinato.harness.tools import apply_patch, edit
from ostinato.harness.tools.contents import MARKS, decode, rewritten

PLAIN = st.text(st.sampled_from("ab \t\r\x0b\x0c\x85é\u2028\ufeff🙂"), max_size=4)
WESTERN = st.text(st.sampled_from("ab \té\xa0ß’"), max_size=4)


@st.composite
def files(draw: st.DrawFn) -> tuple[bytes, str]:
    """A file with a line `x = 1` that stands once, and the name of its encoding."""
    mark, encoding = draw(st.sampled_from([(b"", "utf-8"), (b"", "cp1252"), *MARKS]))
    line = WESTERN if encoding == "cp1252" else PLAIN
    kinds = draw(st.sampled_from([["\n"], ["\r\n"], ["\n", "\r\n"]]))
    lines = [*draw(st.lists(line, max_size=4)), "x = 1", *draw(st.lists(line, max_size=4))]
    text = "".join(each + draw(st.sampled_from(kinds)) for each in lines)
    text += draw(st.sampled_from(["", "end"]))
    return mark + (
        text.encode(encoding) if encoding != "cp1252" else b"\xe9\n" + text.encode(encoding)
    ), encoding


@given(files())
def test_every_tool_keeps_what_it_does_not_change(made: tuple[bytes, str]) -> None:
    data, encoding = made
    found = decode(data, "f")
    assert found.encoded(found.text) == data
    expected = data.replace("x = 1".encode(encoding), "x = 2".encode(encoding))
    assert rewritten(data, found.shown.replace("x = 1", "x = 2"), "f") == expected
    assert found.encoded(edit.replace(found.text, "x = 1", "x = 2")) == expected
    (change,) = apply_patch.parse("*** Begin Patch\n*** Update File: f\n-x = 1\n+x = 2\n*** End Patch")
    assert found.encoded(apply_patch.apply(found.text, change.hunks, "f")) == expected


@pytest.mark.parametrize(
    ("data", "content", "after"),
    [
        (b"a\r\nb\nc\r\n", "a\nnew\nb\nc\n", b"a\r\nnew\r\nb\nc\r\n"),
        (b"a\r\nb\nc\r\n", "c\nB\n", b"c\r\nB\r\n"),
        (b"a\r\nb\r\n", "", b""),
        (b"a", "b\n", b"b"),
        (b"a\n", "b", b"b\n"),
        (b"a\r", "b\r\n", b"b\r"),
        (b"", "a\r\nb", b"a\r\nb"),
        (b"\xff\0", "text\n", b"text\n"),
        (b"\xff\xfea\0", "\ufeffb", b"\xff\xfeb\0"),
        (b"# coding: latin-1\n# \xe9\n", "# coding: utf-8\n# é\n", "# coding: utf-8\n# é\n".encode()),
        ("# vim: fileencoding=koi8-r\n# да\n".encode("koi8-r"), "# нет\n", "# нет\n".encode("koi8-r")),
    ],
)
def test_a_file_that_is_written_anew_stays_as_it_was(data: bytes, content: str, after: bytes) -> None:
    assert rewritten(data, content, "f") == after


WRITTEN = st.lists(st.sampled_from(["a", "b", " ", "\n", "\n\n", "\r\n", "\r", "\ufeff"]), max_size=7).map(
    "".join
)


def lines(text: str) -> list[str]:
    """The lines as a reader sees them: neither mark nor newlines, nor whether the last one has any."""
    *ended, rest = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    return [*ended, rest] if rest else ended


@given(WRITTEN, WRITTEN)
@example("a", "a\n\n\n")
@example("a", "\ufeff")
@example("a", "\ufeff\n")
@example("a\r\nb", "b\r\n\r\n")
def test_the_lines_that_a_model_asks_for_are_those_on_the_disk(old: str, new: str) -> None:
    assume("\ufeff\ufeff" not in old + new)  # a second mark is text
    assume("\r" not in old.replace("\r\n", "\n"))  # a lone CR before LF is shown as text, and written so
    assert lines(rewritten(old.encode(), new, "f").decode()) == lines(new)


@pytest.mark.parametrize(("old", "after"), [("a", "a\n\n"), ("a\n", "a\n\n"), ("a\r\nb", "a\r\nb\r\n\r\n")])
def test_a_patch_that_adds_a_blank_last_line_adds_it(old: str, after: str) -> None:
    last = old.rsplit(maxsplit=1)[-1]
    patch = f"*** Begin Patch\n*** Update File: f\n@@\n {last}\n+\n*** End Patch"
    (change,) = apply_patch.parse(patch)
    assert apply_patch.apply(old, change.hunks, "f") == after


def test_what_an_encoding_lacks_is_refused() -> None:
    with pytest.raises(UnexpectedEnvironment, match="f is in cp1252, which has no '→': leave it out"):
        decode(b"caf\xe9", "f").encoded("→")
    with pytest.raises(UnexpectedEnvironment, match="blob is not text"):
        decode(b"\x89PNG\0\xff", "blob")


def test_an_edit_takes_either_newline_and_puts_the_one_that_was_there() -> None:
    text = "a\r\nb\nc\r\nd"
    assert edit.replace(text, "a\nb\nc", "a\nB\nc") == "a\r\nB\nc\r\nd"
    assert edit.replace(text, "b", "b\nb") == "a\r\nb\nb\nc\r\nd"
    assert edit.replace(text, "d", "d\nd") == "a\r\nb\nc\r\nd\r\nd"
    with pytest.raises(UnexpectedEnvironment, match=r"not unique \(2\)"):
        edit.replace("a\r\nb\na\nb\n", "a\nb", "x")
