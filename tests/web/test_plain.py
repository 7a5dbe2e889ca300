from ostinato.web.plain import LONGEST_LINE, clean, line_of, shown


def test_what_moves_the_eye_becomes_a_visible_sign() -> None:
    assert clean("\x1b[2J\x00\x07\x7f") == "␛[2J␀␇␡"
    assert clean("user\u202ecod.exe\u2066x\u2069\u200f") == "user⟨202E⟩cod.exe⟨2066⟩x⟨2069⟩⟨200F⟩"
    assert clean("a\ud800b") == "a\ufffdb"
    assert clean("a\r\nb\rc\td") == "a\nb␍c\td"


def test_letters_of_all_languages_stay() -> None:
    text = "naïve 漢字 עברית 🎉 e\u0301"
    assert clean(text) == text


def test_a_long_text_is_cut_and_says_by_how_much() -> None:
    whole = shown("x" * 10, most=4)
    assert (whole.text, whole.cut) == ("xxxx", 6)
    line = shown("a\n" + "b" * (LONGEST_LINE + 5) + "\nc", most=10 * LONGEST_LINE)
    assert line.text == "a\n" + "b" * LONGEST_LINE + "…\nc" and line.cut == 5


def test_a_line_has_no_line_breaks() -> None:
    assert line_of(" a\n\n b\t c ") == "a b c"
    assert line_of("x" * 50, 10) == "x" * 9 + "…"
