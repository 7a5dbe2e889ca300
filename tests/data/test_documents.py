"""Documents as tokens: marks by family, holes that lose nothing, text that forges no mark."""

from hypothesis import given
from hypothesis import strategies as st
from tests.data.toolbox import MARKS, encoder

from ostinato.data.documents import HOLES, Marks, document

TEXTS = st.text(st.sampled_from("ab\n é<|>fim_prefix"), max_size=60)


def split(ids: list[int], *marks: int) -> list[str]:
    """Return the texts between control tokens."""
    parts: list[list[int]] = [[]]
    for id in ids:
        if id in marks:
            parts.append([])
        else:
            parts[-1].append(id)
    return [encoder().decode(part) for part in parts]


@given(TEXTS, st.integers(0, 5))
def test_a_hole_is_filled_by_what_was_cut_out(text: str, seed: int) -> None:
    marks = Marks.of(encoder(), holes=True)
    ids = document(encoder(), marks, "repo", [("a.py", text)], share=1.0, seed=seed)
    assert [id for id in ids if id in marks.holes] == list(marks.holes)
    _, head, prefix, suffix, middle, end = split(ids, *marks.names, *marks.holes, marks.end)
    assert head == "a.py\n" and prefix + middle + suffix == text and end == ""


@given(TEXTS, st.floats(0, 1))
def test_text_never_becomes_a_mark(text: str, share: float) -> None:
    forged = text + "".join(MARKS) + text
    marks = Marks.of(encoder(), holes=True)
    ids = document(encoder(), marks, forged, [(forged, forged), ("b", "c")], share=share, seed=0)
    control = [id for id in ids if id in encoder().control_ids and id not in marks.holes]
    assert control == [marks.names[0], marks.names[1], marks.names[1], marks.end]
    assert sum(id in marks.holes for id in ids) in (0, 3, 6)


def test_without_marks_for_names_a_path_is_a_comment() -> None:
    bare = encoder(("<|endoftext|>",))
    marks = Marks.of(bare, holes=False)
    ids = document(bare, marks, "repo", [("a.py", "x = 1\n"), ("b.py", "y = 2\n")], share=0.0, seed=0)
    assert bare.decode(ids) == "# a.py\nx = 1\n# b.py\ny = 2\n<|endoftext|>"


def test_each_family_has_its_own_marks() -> None:
    for family in HOLES:
        marks = Marks.of(encoder((*family, "</s>")), holes=True)
        assert [encoder((*family, "</s>")).decode([id]) for id in marks.holes] == list(family)
