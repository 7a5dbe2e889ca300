"""The text of a stream of token ids, released as soon as it is certain to be content."""

import codecs
from collections.abc import Sequence

from ostinato.model.families import Renderer


class TextStream:
    """The text of a growing completion, without what may be the start of a tool call or of a stop text.

    Reasoning at its start is no content: what is certain begins after it.
    """

    def __init__(self, renderer: Renderer, stops: Sequence[str] = ()) -> None:
        self._renderer = renderer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = tuple(stops)
        self._calls = renderer.call_marks
        self._marks = (*(f"\n{mark}" for mark in self._calls), *self._calls, *stops)
        self._before = bool(renderer.think[0])
        self._inside = renderer.opened
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
        if self._before and not self._past_reasoning():
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

    def _past_reasoning(self) -> bool:
        """Drop reasoning at the start of the held text; return whether content has begun."""
        start, end = self._renderer.think
        text = self._held
        if self._inside:
            reasoning, closed, rest = text.partition(end)
            self._inside, self._held = not closed, rest if closed else reasoning
        elif start.startswith(text.lstrip()):
            return False
        elif text.lstrip().startswith(start):
            self._inside, self._held = True, text.lstrip()[len(start) :]
            return self._past_reasoning()
        else:
            self._before = False
            return True
        if self._inside:
            return False
        return self._past_gap()

    def _past_gap(self) -> bool:
        """Drop the line breaks after reasoning."""
        self._held = self._held.lstrip("\n")
        self._before = not self._held
        return not self._before

    def _sure(self) -> int:
        """Return the length of held text that cannot belong to a tool call, its newline or a stop text."""
        text = self._held
        at = min((at for mark in self._calls if (at := text.find(mark)) >= 0), default=-1)
        if at >= 0:
            self._in_call = True
            text = text[: at - text[:at].endswith("\n")]
            return len(text) - self._open_end(text, self._stops)
        return len(text) - self._open_end(text, self._marks)

    @staticmethod
    def _open_end(text: str, marks: Sequence[str]) -> int:
        """Return the length of the longest end of `text` that begins one of `marks`."""
        lengths = range(min(max(map(len, marks), default=0), len(text)), 0, -1)
        return next((n for n in lengths if any(mark.startswith(text[-n:]) for mark in marks)), 0)
