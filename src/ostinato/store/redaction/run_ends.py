"""Where runs of characters end, each looked for once: values without a bound, read in linear time."""

import re
from functools import cache


@cache
def _pattern(characters: str) -> re.Pattern[str]:
    return re.compile(f"{characters}*+")


class Runs:
    """Ends of runs in one text.

    >>> Runs("a = bcd;").end("[a-z]", 4)
    7
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._last: dict[str, tuple[int, int]] = {}

    def end(self, characters: str, at: int) -> int:
        """Where the run of `characters`, a class of a regular expression, that goes through `at` ends.

        Every place inside a run has the same end, so a run that was followed is not followed again.
        """
        start, end = self._last.get(characters, (0, -1))
        if not start <= at < end:
            start, end = at, _matched(characters, self._text, at)
            self._last[characters] = start, end
        return end


def _matched(characters: str, text: str, at: int) -> int:
    match = _pattern(characters).match(text, at)
    return match.end() if match is not None else at
