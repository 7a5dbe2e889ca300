"""The text of a stream of token ids, released as soon as it is certain to be content."""

import codecs
from collections.abc import Sequence

from ostinato.model.families import Renderer


class TextStream:
    """The text of a growing completion, without what may be the start of a tool call or of a stop text.

    Of a completion that begins with reasoning nothing is certain before its end: only the whole reply says
    where the answer begins.
    """

    def __init__(self, renderer: Renderer, stops: Sequence[str] = ()) -> None:
        self._renderer = renderer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = tuple(stops)
        self._calls = renderer.call_marks
        self._marks = (*self._calls, *stops)
        self._begun = self._reasons = False
        self._held = ""
        self._in_call = False
        self._tail = ""
        self._longest = max(map(len, self._stops), default=1) - 1
        self.sent = ""
        self.stopped = False
        """True once one of the stop texts is complete."""

    def add(self, ids: Sequence[int]) -> str:
        """Add ids; return the text that they make certain, possibly none."""
        words = [i for i in ids if i not in self._renderer.stop_ids]
        new = self._decoder.decode(self._renderer.tokenizer.decode_bytes(words))
        if self._stops:
            self._look_for_stops(new)
        self._held += new
        if not self._begun and self._may_be_reasoning():
            return ""
        if self._in_call or self.stopped:
            return ""
        sure = self._sure()
        piece, self._held = self._held[:sure], self._held[sure:]
        self.sent += piece
        return piece

    def _look_for_stops(self, new: str) -> None:
        text = self._tail + new
        self.stopped = self.stopped or any(stop in text for stop in self._stops)
        self._tail = text[-self._longest :] if self._longest else ""

    def _may_be_reasoning(self) -> bool:
        if self._reasons or self._renderer.opened:
            return True
        start, text = self._renderer.think[0], self._held.lstrip()
        self._reasons = bool(start) and text.startswith(start)
        self._begun = not self._reasons and not (start and start.startswith(text))
        return not self._begun

    def _sure(self) -> int:
        """Return the length of held text that cannot belong to a tool call, the newlines before it or a stop
        text."""
        text = self._held
        at = min((at for mark in self._calls if (at := text.find(mark)) >= 0), default=-1)
        if at >= 0:
            self._in_call = True
            text = text[:at]
        text = text[: len(text) - self._open_end(text, self._stops if self._in_call else self._marks)]
        return len(text.rstrip("\n"))

    @staticmethod
    def _open_end(text: str, marks: Sequence[str]) -> int:
        """Return the length of the longest end of `text` that begins one of `marks`."""
        lengths = range(min(max(map(len, marks), default=0), len(text)), 0, -1)
        return next((n for n in lengths if any(mark.startswith(text[-n:]) for mark in marks)), 0)


MOST_BETWEEN = 8
"""Tokens of white space that may stand between two calls."""


class FirstCall:
    """The first tool call of a growing completion, for a client that reads one call of an answer."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._longest = max(map(len, renderer.call_marks), default=0)
        self._ids: list[int] = []
        self._tail = ""

    def ends_at(self, ids: Sequence[int]) -> int:
        """Add ids; return the number of all ids that make up the first call once a second one begins, else 0.

        The text of a call may hold the mark of one: it has ended only where what stands before is a call.
        """
        text = self._tail + self._renderer.tokenizer.decode(list(ids))
        begun = any(mark in text for mark in self._renderer.call_marks)
        # A mark that was found is dropped, so that each is looked at once.
        self._tail = "" if begun else text[max(0, len(text) - self._longest + 1) :]
        self._ids += ids
        lengths = range(len(self._ids) - 1, max(0, len(self._ids) - self._longest - MOST_BETWEEN), -1)
        if not begun or not (found := [n for n in lengths if self._is_call(n)]):
            return 0
        return found[-1]

    def _is_call(self, length: int) -> bool:
        parsed = self._renderer.parse_text(self._renderer.tokenizer.decode(self._ids[:length]))
        return parsed.broken is None and bool(parsed.tool_calls)
