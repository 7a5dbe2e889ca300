import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.harness.errors import InvalidArguments, ToolError, UnexpectedEnvironment
from ostinato.harness.tools.contents import is_crlf
from ostinato.harness.tools.edit import nearest, replace

line = st.text(st.sampled_from("ab \t\ré{}🙂"), max_size=6)


@st.composite
def files(draw: st.DrawFn) -> str:
    """Text of any newline convention, mixed ones too, with or without the last newline."""
    ends = draw(st.sampled_from([["\n"], ["\r\n"], ["\n", "\r\n"]]))
    lines = draw(st.lists(line, max_size=8))
    text = "".join(part + draw(st.sampled_from(ends)) for part in lines)
    return text + draw(line)


@st.composite
def edits(draw: st.DrawFn) -> tuple[str, str, str]:
    """A file, a part of it (mostly) as it was read, and what to put there."""
    text = draw(files())
    start = draw(st.integers(0, len(text)))
    part = text[start : draw(st.integers(start, len(text)))]
    shown = part.replace("\r\n", "\n") if draw(st.booleans()) else part
    return text, draw(st.sampled_from([shown, shown + "b", draw(line)])), draw(files())


@given(edits(), st.booleans())
def test_an_edit_changes_its_region_and_no_other_byte(edit: tuple[str, str, str], everywhere: bool) -> None:
    text, old, new = edit
    try:
        changed = replace(text, old, new, replace_all=everywhere)
    except ToolError:
        return
    if is_crlf(text):
        old, new = (part.replace("\r\n", "\n").replace("\n", "\r\n") for part in (old, new))
    elif "\r\n" in text and "\r\n" not in old:  # either newline was meant: compare them as they are shown
        if "\r" in old + new + text.replace("\r\n", ""):
            return  # a lone CR may come to stand before an LF
        changed, text = changed.replace("\r\n", "\n"), text.replace("\r\n", "\n")
    found = sum(text.startswith(old, at) for at in range(len(text)))
    assert found >= 1
    if found == 1:
        before, _, after = text.partition(old)
        assert changed == before + new + after
    else:
        assert everywhere
        assert changed == new.join(text.split(old))


@given(edits())
def test_lines_of_a_crlf_file_stay_crlf(edit: tuple[str, str, str]) -> None:
    text, old, new = (part.replace("\r", "") for part in edit)
    crlf = text.replace("\n", "\r\n")
    try:
        changed = replace(crlf, old, new)
    except ToolError:
        return
    if "\n" in text:
        assert changed == replace(text, old, new).replace("\n", "\r\n")
        assert changed.endswith("\r\n") == replace(text, old, new).endswith("\n")


@pytest.mark.parametrize(
    ("old", "new", "kind", "message"),
    [
        ("", "x", InvalidArguments, "old_string is empty"),
        ("a", "a", InvalidArguments, "identical"),
        ("aa", "b", UnexpectedEnvironment, r"not unique \(2\)"),
        ("zzz", "b", UnexpectedEnvironment, "^old_string not found$"),
        ("  return a -  b", "b", UnexpectedEnvironment, "not found; nearest:\n    return a - b$"),
    ],
)
def test_what_cannot_be_edited_is_said(old: str, new: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        replace("aaa\ndef f(a, b):\n    return a - b\n", old, new)


def test_the_nearest_region_is_as_long_as_what_was_looked_for() -> None:
    text = "def f(a):\n    x = a\n    y = a\n    z = a\n    return x\n"
    assert nearest(text, "x = b\ny = b") == "; nearest:\n    x = a\n    y = a"
    assert nearest(text, "x = b\n1\n2\n3\n4") == "; nearest:\n    x = a\n    y = a\n    z = a"
    assert nearest(text, "\n \n") == nearest("", "x") == ""


def test_everywhere() -> None:
    assert replace("a b a", "a", "c", replace_all=True) == "c b c"
