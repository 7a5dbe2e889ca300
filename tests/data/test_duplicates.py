"""Exact and near copies."""

from tests.data.toolbox import program

from ostinato.data.duplicates import EXACT, NEAR, Copies


def test_the_first_of_several_copies_stays() -> None:
    copies = Copies(0.8)
    assert [copies.reason(program(n)) for n in range(20)] == [""] * 20
    assert copies.reason(program(3)) == EXACT
    assert copies.reason(program(3) + "one_more = 1\n") == NEAR
    assert not copies.reason(program(3) + program(21))  # half of it is new


def test_a_text_of_few_words_has_exact_copies_alone() -> None:
    copies = Copies(0.8)
    assert [copies.reason(text) for text in ("a b c", "a b d", "a b c")] == ["", "", EXACT]


def test_what_is_a_copy_does_not_depend_on_the_process() -> None:
    texts = [program(n) + program(n + 1)[: 40 * n] for n in range(12)] * 2
    assert [Copies(0.6).reason(text) for text in texts] == [""] * 24
    one, other = Copies(0.6), Copies(0.6)
    assert [one.reason(text) for text in texts] == [other.reason(text) for text in texts]
