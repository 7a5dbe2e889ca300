import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ostinato.edits.text.align import split
from ostinato.edits.text.tokens import key, same_meaning, tokens

UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("f(a, b)", "f(\n    a,\n    b,\n)"),
        ("x = 'a'", 'x = "a"'),
        ("let x = 1;\n", "let x = 1\n"),
        ("x = 1 + \\\n    2", "x = 1 + 2"),
        ("if (x) {\n\ty()\n}", "if (x) { y() }"),
    ],
)
def test_formatting_is_nothing(one, other) -> None:
    assert tokens(split(one)) == tokens(split(other))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("x = (a +\n     b)\n", "x = a + b\n", True),
        ("    return  f(a,b)\n", "return f(a, b)\n", True),
        ("x = 1  # why\n", "x = 1\n", False),
        ("x = 1  # why\n", "x = 1  #  why\n", True),
        ("for a in b:\n    c()\nd()\n", "for a in b:\n    c()\n    d()\n", False),
        ("else:\n    x\n", "else :\n  x\n", True),
        ("x = 1\n", "x = 2\n", False),
    ],
)
def test_python_is_compared_by_its_grammar(one, other, same) -> None:
    assert same_meaning("a.py", split(one), split(other)) is same


def test_other_languages_are_compared_by_their_words() -> None:
    assert same_meaning("a.ts", ["a({b, c})\n"], ["a({\n", "  b,\n", "  c,\n", "})\n"])
    assert not same_meaning("a.ts", ["a(b)\n"], ["a(c)\n"])


@UNTIMED
@given(st.text())
def test_any_text_has_words_and_a_meaning(text) -> None:
    lines = split(text)
    assert same_meaning("a.py", lines, lines)
    assert all(key(line) == key(f"  {line}  ") for line in lines if not line.endswith((";", "\\")))
