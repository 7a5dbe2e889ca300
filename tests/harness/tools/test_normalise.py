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
