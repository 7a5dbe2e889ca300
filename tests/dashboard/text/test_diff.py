from ostinato.dashboard.text.diff import MOST_LINES, of_call


def test_an_edit_shows_both_sides() -> None:
    call = {"path": "a.py", "old_string": "one\ntwo\n", "new_string": "one\nthree\n"}
    assert of_call(call) == [(" ", "one"), ("-", "two"), ("+", "three")]


def test_a_new_file_is_all_added_and_a_patch_is_read_by_its_signs() -> None:
    assert of_call({"file_path": "a.py", "content": "x\ny"}) == [("+", "x"), ("+", "y")]
    patch = "*** Update File: a.py\n@@\n same\n-old\n+new"
    assert of_call({"patch": patch}) == [
        ("@", "*** Update File: a.py"),
        ("@", "@@"),
        (" ", "same"),
        ("-", "old"),
        ("+", "new"),
    ]


def test_other_calls_have_no_diff_and_odd_arguments_do_no_harm() -> None:
    assert of_call({"command": "ls"}) == []
    assert of_call({"content": "a tweet"}) == []
    assert of_call({"old_string": 3, "new_string": None, "path": []}) == []


def test_a_diff_has_an_end() -> None:
    call = {"old_string": "a\n" * 5_000, "new_string": "b\n" * 5_000}
    assert len(of_call(call)) == 2 * MOST_LINES
