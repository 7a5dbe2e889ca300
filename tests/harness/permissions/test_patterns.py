import itertools
import re

from hypothesis import example, given
from hypothesis import strategies as st

from ostinato.harness.permissions import patterns
from ostinato.harness.permissions.shell import UNKNOWN

LETTERS = "ab "
PATTERN = st.text("ab *?\\", max_size=7)
SHAPE = st.text(f"ab {UNKNOWN}", max_size=6)
FILLINGS = ["".join(each) for size in range(4) for each in itertools.product(LETTERS, repeat=size)]


def slowly(pattern: str, text: str) -> bool:
    """The meaning of a pattern, letter by letter; a lone backslash at its end stands for itself.

    Of `a * *` only the last ` *` may match nothing: it is read once.
    """
    pieces = re.findall(r"\\.|.", pattern, re.DOTALL)
    sources = [{"*": "[^!]*", "?": "[^!]"}.get(piece) or re.escape(piece[-1]) for piece in pieces]
    readings = [sources, sources[:-2]] if pieces[-2:] == [" ", "*"] else [sources]
    return any(re.fullmatch("".join(each), text, re.DOTALL) is not None for each in readings)


@example(pattern=" * *", text="")
@example(pattern="a\\ *", text="a\\")
@given(pattern=PATTERN, text=st.text("ab \\*?\n", max_size=8))
def test_a_pattern_matches_what_it_says(pattern: str, text: str) -> None:
    assert patterns.matches(pattern, text) is slowly(pattern, text)
    assert patterns.matches(patterns.exactly(text), text)
    assert patterns.is_exact(patterns.exactly(text))


@given(pattern=PATTERN, shape=SHAPE)
def test_a_shape_is_matched_for_all_it_may_become_and_met_for_one(pattern: str, shape: str) -> None:
    texts = [shape.replace(UNKNOWN, filling) for filling in FILLINGS]
    if patterns.matches(pattern, shape):
        assert all(patterns.matches(pattern, text) for text in texts)
    if any(patterns.matches(pattern, text) for text in texts):
        assert patterns.meets(pattern, shape)


def test_what_a_shape_may_not_become_is_not_met() -> None:
    assert not patterns.meets("git push *", f"ls {UNKNOWN}")
    assert not patterns.meets("a?", f"b{UNKNOWN}")
    assert patterns.meets("a?c", f"a{UNKNOWN}c")
    assert not patterns.meets("ab", f"a{UNKNOWN}bc")


def test_a_text_occurs_as_whole_words() -> None:
    assert patterns.occurs("git push *", "x; git push")
    assert not patterns.occurs("git push *", "x; git pushed")
    assert not patterns.occurs("rm *", "my-rm x")
