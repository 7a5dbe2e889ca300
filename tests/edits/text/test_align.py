from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ostinato.edits.text.align import Block, Region, blocks, follow, split

UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

TEXT = st.lists(st.sampled_from(["a\n", "b\n", "c = 1\n", "\n", "d(x)\n", "    e\n"]), max_size=25)
MANY = st.lists(st.integers(0, 60).map("line {}\n".format), max_size=60)


def apply(a, b, changes):
    """Return `a` with its changed blocks replaced by those of `b`."""
    made, at = [], 0
    for change in changes:
        made += a[at : change.a1] + b[change.b1 : change.b2]
        at = change.a2
    return made + a[at:]


@UNTIMED
@given(TEXT | MANY, TEXT | MANY)
def test_the_blocks_turn_one_text_into_the_other(a, b) -> None:
    assert apply(a, b, blocks(a, b, by=lambda line: line)) == b


@UNTIMED
@given(TEXT | MANY)
def test_equal_texts_have_no_blocks(a) -> None:
    assert blocks(a, a) == []


@UNTIMED
@given(TEXT | MANY, TEXT | MANY, st.data())
def test_a_region_lies_within_the_other_text(a, b, data) -> None:
    start = data.draw(st.integers(0, len(a)))
    end = data.draw(st.integers(start, len(a)))
    region = follow(blocks(a, b), a, b, start, end)
    assert 0 <= region.start <= region.end <= len(b)
    assert region.skip >= 0 and region.drop >= 0


@UNTIMED
@given(TEXT | MANY, TEXT, TEXT, st.data())
def test_lines_inserted_around_a_region_are_not_part_of_it(a, above, below, data) -> None:
    start = data.draw(st.integers(0, len(a)))
    end = data.draw(st.integers(start, len(a)))
    inside = [f"own {n}\n" for n in range(start, end)]
    old = ["top\n", *inside, "bottom\n"]
    new = ["top\n", *above, *inside, *below, "bottom\n"]
    region = follow(blocks(old, new), old, new, 1, 1 + len(inside))
    if inside:
        assert new[region.start : region.end] == inside and not region.skip and not region.drop


def test_a_border_in_a_rewritten_block_is_followed_word_by_word() -> None:
    old = ["x = first(1)\n", "y = second(2)\n", "z = third(3)\n"]
    new = ["x = first(1); y = second(\n", "    2\n", "); z = third(3)\n"]
    region = follow(blocks(old, new), old, new, 1, 2)
    assert region.words(new) == ["y", "=", "second", "(", "2", ")"] or region.words(new)[:1] == [";"]


def test_text_put_back_where_lines_were_deleted_is_the_region() -> None:
    old, new = ["a\n", "b\n"], ["a\n", "gone\n", "b\n"]
    assert follow(blocks(old, new), old, new, 1, 1) == Region(start=1, end=2)
    assert follow([], old, old, 1, 1) == Region(start=1, end=1)


def test_texts_too_large_to_compare_are_one_block() -> None:
    a, b = ["x\n", "y\n"] * 2_000, ["y\n", "z\n", "x\n"] * 2_000
    assert blocks(a, b) == [Block(a1=0, a2=len(a), b1=0, b2=len(b))]


def test_lines_end_with_newlines_only() -> None:
    assert split("a\x0cb\r\nc") == ["a\x0cb\r\n", "c"]
    assert split("") == [] and split("\n") == ["\n"]
