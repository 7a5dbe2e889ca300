"""Files are cut where their syntax says, and no content can break the cutter."""

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st
from tests.search.toolbox import CALC

from ostinato.search.chunks import LINE_CHARS, LINES, MOST_CHUNKS, chunks, syntax_of


def test_functions_methods_and_heads_of_classes_stand_alone():
    names = [(piece.name, piece.first, piece.last) for piece in chunks(CALC, "python")]
    assert names == [("", 1, 1), ("Till", 4, 5), ("Till.total_of_coins", 7, 8), ("parse_header", 11, 13)]


def test_decorators_belong_to_what_they_decorate():
    (piece,) = chunks(b"@cache\n@other(\n    1\n)\ndef f():\n    pass\n", "python")
    assert (piece.first, piece.last, piece.name) == (1, 6, "f")


def test_python_that_does_not_parse_is_cut_like_text():
    pieces = chunks(b"def broken(:\n    pass\n", "python")
    assert [(piece.name, piece.first) for piece in pieces] == [("", 1)]


def test_long_functions_and_long_lines_are_cut():
    pieces = chunks(b"def f():\n" + b"    x = 1\n" * 100, "python")
    assert [piece.last - piece.first + 1 for piece in pieces] == [LINES, 101 - LINES]
    (piece,) = chunks(b"x" * 10_000, "text")
    assert len(piece.text) == LINE_CHARS


def test_paragraphs_are_packed():
    pieces = chunks(b"one\ntwo\n\n" * 40, "text")
    assert len(pieces) == 5
    assert pieces[0].first == 1 and pieces[-1].last >= 118


def test_binary_and_blank_files_have_none():
    assert chunks(b"\x7fELF\0\1", "text") == []
    assert chunks(b"\n  \n", "python") == []
    assert chunks(b"", "python") == []


def test_syntax_goes_by_the_name():
    assert [syntax_of(path) for path in ("a/b.py", "a.pyi", "Makefile", ".py")] == ["python"] * 2 + [
        "text"
    ] * 2


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode(errors="replace")))
@example(b"(" * 50_000)
@example(b"-" * 50_000 + b"1")
@example(b"class A:\n  class B:\n    def c(self): pass\n    x = 1\n  def d(self): pass; y = 1\n")
@example(b"def f(): pass; g = 1\ndef h(): pass")
@example(b"x = '\\d'\r\ndef f():\r\n  pass\x0c\n")
@example(b"def f():\n pass\n\n" * 6_000)
def test_any_content_gives_ordered_pieces_within_the_file(content):
    for syntax in ("python", "text"):
        pieces = chunks(content, syntax)
        assert len(pieces) <= MOST_CHUNKS
        assert all(1 <= piece.first <= piece.last <= content.count(b"\n") + 1 for piece in pieces)
        assert all(a.last < b.first for a, b in pairwise(pieces))
