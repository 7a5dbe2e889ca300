from ostinato.harness.tools.normalise import normalise


def test_clock_and_place_are_left_out() -> None:
    output = (
        "\n/box/repo/calc.py:3: AssertionError\n<F object at 0x7f12ab34cd56>\n=== 1 failed in 0.13s ===\n\n"
    )
    assert normalise(output, "/box/repo") == "calc.py:3: AssertionError\n<F object at 0x>\n=== 1 failed ==="
    assert normalise("2 passed in 61.02s (0:01:01)\n") == "2 passed"
    assert normalise("/box/repo\n/box/repository\n", "/box/repo") == ".\n/box/repository"


def test_the_rest_is_kept() -> None:
    assert normalise("    indented in 3 s\r\n0xdeadbeef\n") == "    indented in 3 s\r\n0xdeadbeef"


def test_a_longer_path_that_ends_or_begins_like_the_place_is_kept() -> None:
    text = "/home/a/repo/calc.py\nx/repo\n/repo2/calc.py\n'/repo/calc.py' -I/repo/include a:/repo"
    assert normalise(text, "/repo") == (
        "/home/a/repo/calc.py\nx/repo\n/repo2/calc.py\n'calc.py' -Iinclude a:."
    )
