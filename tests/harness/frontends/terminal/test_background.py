"""Terminals that answer, terminals that stay silent, and what is no terminal."""

import os
import pty
import termios
import threading
from collections.abc import Iterator

import pytest

from ostinato.harness.frontends.terminal.background import ASKED, brightness_of, is_dark

ATTRIBUTES = b"\x1b[?62;22c"
"""The answer of every terminal to the second question."""


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    """The terminal's end and the program's end of a pty."""
    outer, inner = pty.openpty()
    yield outer, inner
    os.close(outer)
    os.close(inner)


def answering(outer: int, answer: bytes) -> threading.Thread:
    """Start a terminal that waits for the whole question, then answers."""

    def respond() -> None:
        asked = b""
        while ASKED not in asked:
            asked += os.read(outer, 1024)
        os.write(outer, answer)

    thread = threading.Thread(target=respond)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("answer", "environment", "dark"),
    [
        (b"\x1b]11;rgb:1e1e/1e1e/1e1e\x1b\\" + ATTRIBUTES, {"COLORFGBG": "0;15"}, True),
        (b"\x1b]11;rgb:ff/fa/e6\x07" + ATTRIBUTES, {"COLORFGBG": "15;0"}, False),
        (ATTRIBUTES, {"COLORFGBG": "0;15"}, False),
        (ATTRIBUTES, {}, True),
    ],
)
def test_the_terminals_own_answer_counts_before_the_environment(
    ends: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
    answer: bytes,
    environment: dict[str, str],
    dark: bool,
) -> None:
    monkeypatch.setattr("ostinato.harness.frontends.terminal.background.WAIT_S", 60.0)
    outer, inner = ends
    before = termios.tcgetattr(inner)
    terminal = answering(outer, answer)
    assert is_dark(inner, environment) is dark
    terminal.join()
    assert termios.tcgetattr(inner) == before


def test_a_silent_terminal_is_dark_and_left_as_it_was(ends: tuple[int, int]) -> None:
    before = termios.tcgetattr(ends[1])
    assert is_dark(ends[1], {})
    assert termios.tcgetattr(ends[1]) == before


@pytest.mark.parametrize(
    ("behind", "dark"), [("15;0", True), ("0;15", False), ("0;default;15", False), ("0;default", True)]
)
def test_what_is_no_terminal_is_as_the_environment_says(behind: str, dark: bool) -> None:
    reading, writing = os.pipe()
    assert is_dark(reading, {"COLORFGBG": behind}) is dark
    os.close(reading)
    os.close(writing)


def test_brightness_of_answers_of_any_length() -> None:
    assert brightness_of(b"\x1b]11;rgb:0/0/0\x07") == 0.0
    assert brightness_of(b"\x1b]11;rgb:ffff/0000/0000\x07") == 0.2126
    assert brightness_of(ATTRIBUTES) is None
