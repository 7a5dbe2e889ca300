"""The ends of runs of characters, each found once, so that values of any length are read in linear time."""

import re
from functools import cache


@cache
def _pattern(characters: str) -> re.Pattern[str]:
    return re.compile(f"{characters}*+")


class RunEnds:
    """The ends of runs in one text.

    >>> RunEnds("a = bcd;").end("[a-z]", 4)
    7
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._last: dict[str, tuple[int, int]] = {}

    def end(self, characters: str, at: int) -> int:
        """Return the end of the run through `at` of `characters`, which is a class of a regular expression.

        Every position inside a run has the same end, so the last run is remembered and not scanned again.
        """
        start, end = self._last.get(characters, (0, -1))
        if not start <= at < end:
            match = _pattern(characters).match(self._text, at)
            start, end = at, at if match is None else match.end()
            self._last[characters] = start, end
        return end
