"""Markdown as the model writes it: everything it wrote is shown, and what is settled is rendered once."""

import re
from copy import copy
from functools import cache

from markdown_it import MarkdownIt
from rich.console import Console
from rich.markdown import Markdown
from rich.segment import Segment
from textual.strip import Strip

FENCE = re.compile(r"^ {0,3}(```|~~~)")
INDENTED = re.compile(r"^(\s|[-*+>|]|\d+[.)])")


def said(text: str, *, dark: bool = True) -> Markdown:
    """Return Markdown in which HTML is text: a tag that the model wrote must not vanish from the screen.

    >>> [token.content for token in said("a <b>").parsed if token.content]
    ['a <b>']
    """
    shown = copy(_look(dark))
    shown.markup, shown.parsed = text, _parser().parse(text)
    return shown


@cache
def _parser() -> MarkdownIt:
    """Return the one parser: to make it takes longer than to parse a message."""
    return MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])


@cache
def _look(dark: bool) -> Markdown:
    return Markdown("", code_theme="ansi_dark" if dark else "ansi_light", hyperlinks=False)


def settled(text: str) -> int:
    """Return how much of a text that still grows is settled: up to the last blank line after which an
    ordinary paragraph or a heading began, and not within a block of code.

    >>> settled("one\\n\\ntwo\\n\\n```\\nx = 1\\n\\n"), settled("- a\\n\\n- b")
    (10, 0)
    """
    end, at, fenced, blank = 0, 0, False, False
    for line in text.splitlines(keepends=True):
        if FENCE.match(line):
            if not fenced and blank:
                end = at
            fenced = not fenced
        elif not fenced and blank and line.strip() and not INDENTED.match(line):
            end = at
        blank = not fenced and not line.strip()
        at += len(line)
    return end


class GrowingMarkdown:
    """The lines of a text that grows: only the part that is not settled is rendered again."""

    def __init__(self, *, dark: bool) -> None:
        self._dark = dark
        self._done = 0
        self._width = 0
        self._strips: list[Strip] = []

    def lines(self, text: str, console: Console, width: int) -> list[Strip]:
        """Return the lines of the whole text at a width in cells."""
        if width != self._width:
            self._done, self._width, self._strips = 0, width, []
        more = settled(text[self._done :])
        if more:
            self._strips += self._rendered(text[self._done : self._done + more], console)
            self._done += more
        return self._strips + self._rendered(text[self._done :], console)

    def _rendered(self, text: str, console: Console) -> list[Strip]:
        if not text.strip():
            return []
        made = strips_of(said(text, dark=self._dark), console, self._width)
        return made if self._done == 0 else [Strip.blank(self._width), *made]


def strips_of(shown: object, console: Console, width: int) -> list[Strip]:
    """Return the lines of something that Rich shows, at a width in cells."""
    options = console.options.update(width=max(1, width), height=None, highlight=False)
    return [
        Strip(line).adjust_cell_length(width)
        for line in Segment.split_lines(console.render(shown, options))  # type: ignore[arg-type]
    ]
