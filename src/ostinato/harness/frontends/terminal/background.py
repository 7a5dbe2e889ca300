"""The background of a terminal, dark or light: its own answer, else what the environment says."""

import contextlib
import os
import re
import select
import termios
import time
import tty
from collections.abc import Mapping

ASKED = b"\x1b]11;?\x1b\\\x1b[c"
"""The question for the background, and one that every terminal answers, so that nobody waits long."""
COLOUR = re.compile(rb"\x1b\]11;rgb:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")
ANSWERED = re.compile(rb"\x1b\[\?[0-9;]*c")
WAIT_S = 0.3
LIGHT = 0.5
DARK_COLOURS = {"0", "1", "2", "3", "4", "5", "6", "8"}
"""The numbers of COLORFGBG that stand for a dark background."""


def is_dark(descriptor: int, environment: Mapping[str, str]) -> bool:
    """Return whether the terminal has a dark background; True where nothing says so."""
    answer = _answer(descriptor)
    if (brightness := brightness_of(answer)) is not None:
        return brightness < LIGHT
    behind = environment.get("COLORFGBG", "").rpartition(";")[2]
    return not behind.isdecimal() or behind in DARK_COLOURS


def brightness_of(answer: bytes) -> float | None:
    """Return the brightness of the background in an answer, from 0 to 1; None where it has none.

    >>> brightness_of(b"\\x1b]11;rgb:ffff/ffff/ffff\\x1b[?62c")
    1.0
    """
    found = COLOUR.search(answer)
    if found is None:
        return None
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in found.groups())
    return float(round(0.2126 * red + 0.7152 * green + 0.0722 * blue, 6))


def _answer(descriptor: int) -> bytes:
    """Ask the terminal, and return what it answers within a moment."""
    try:
        before = termios.tcgetattr(descriptor)
    except termios.error:
        return b""
    answer, end = b"", time.monotonic() + WAIT_S
    try:
        tty.setcbreak(descriptor, termios.TCSANOW)
        os.write(descriptor, ASKED)
        while not ANSWERED.search(answer) and (left := end - time.monotonic()) > 0:
            if select.select([descriptor], [], [], left)[0]:
                answer += os.read(descriptor, 1024)
    except OSError:
        return b""
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSANOW, before)
    return answer
