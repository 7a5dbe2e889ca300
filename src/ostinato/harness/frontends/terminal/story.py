"""The story of a session: entries below each other, of which only the lines on the screen are touched.

An entry is rendered once for a width. Two thousand of them scroll as fast as two, since a line is found by
bisection. An entry that can be folded opens by a click or by Ctrl-O.
"""

import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import RenderableType
from textual import events
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ostinato.harness.frontends.terminal.markdown import strips_of
from ostinato.harness.frontends.terminal.memory import settle, unsettle

SLICE_S = 0.015
"""Seconds of rendering in one go; the other entries follow while nothing else is to be done."""


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """One entry: how it looks whole and, where it can be folded, how it looks folded."""

    whole: Callable[[int], list[Strip]] | RenderableType
    """A thing that Rich shows, or a function from a width in cells to lines."""
    folded: RenderableType | None = None
    is_open: bool = False
    strips: list[Strip] = field(default_factory=list)
    width: int = 0
    """The width that `strips` were made for; 0 before they were."""


class Story(ScrollView, can_focus=False):
    """The entries, the newest at the bottom, which stays in sight unless somebody scrolled up."""

    DEFAULT_CSS = "Story { overflow-x: hidden; overflow-y: scroll; scrollbar-size-vertical: 1; }"

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.entries: list[Entry] = []
        self._starts: list[int] = []
        self._lines = 0
        self._waiting = False
        self._follows = True

    def add(self, entry: Entry, *, later: bool = False) -> Entry:
        """Show an entry at the end; `later` renders it when nothing else is to be done."""
        self.entries.append(entry)
        self._starts.append(self._lines)
        if later or not self._wide:
            entry.strips = [Strip.blank(self._wide)]
            self._render_later()
        else:
            self._render_entry(entry)
        self._lines += len(entry.strips)
        self._measured()
        return entry

    def change(self, entry: Entry) -> None:
        """Render an entry again, whose content has changed."""
        self._render_entry(entry)
        self._placed(self.entries.index(entry))
        self._measured()

    def toggle(self, entry: Entry) -> None:
        """Open an entry, or fold it."""
        if entry.folded is not None:
            entry.is_open = not entry.is_open
            self.change(entry)

    def toggle_newest(self) -> None:
        """Open or fold the newest entry that can be folded."""
        newest = next((entry for entry in reversed(self.entries) if entry.folded is not None), None)
        if newest is not None:
            self.toggle(newest)

    def render_line(self, y: int) -> Strip:
        line = self.scroll_offset.y + y
        style = self.rich_style
        if line >= self._lines:
            return Strip.blank(self.size.width, style)
        place = bisect_right(self._starts, line) - 1
        strips = self.entries[place].strips
        return strips[line - self._starts[place]].crop_extend(0, self._wide, style).apply_style(style)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Note whether one looks at the end. A window that shrinks does not come by here: it moves nobody."""
        super().watch_scroll_y(old_value, new_value)
        self._follows = new_value >= self.max_scroll_y - 1

    def on_unmount(self) -> None:
        unsettle()

    def on_resize(self, event: events.Resize) -> None:
        self._render_stale()
        self._follow()

    def on_click(self, event: events.Click) -> None:
        line = self.scroll_offset.y + event.y
        if line < self._lines:
            self.toggle(self.entries[bisect_right(self._starts, line) - 1])

    @property
    def _wide(self) -> int:
        return int(self.scrollable_content_region.width)

    def _render_entry(self, entry: Entry) -> None:
        width = self._wide
        shown = entry.folded if entry.folded is not None and not entry.is_open else entry.whole
        entry.strips = shown(width) if callable(shown) else strips_of(shown, self.app.console, width)
        entry.width = width

    def _render_later(self) -> None:
        if not self._waiting:
            self._waiting = True
            self.set_timer(0.01, self._render_stale)

    def _render_stale(self) -> None:
        """Render the newest entries that were made for another width, and the others later."""
        self._waiting = False
        if not self._wide:
            return
        stale = [entry for entry in self.entries if entry.width != self._wide]
        if not stale:
            return
        end = time.monotonic() + SLICE_S
        while stale and time.monotonic() < end:
            self._render_entry(stale.pop())
        self._placed(0)
        self._measured()
        settle()
        if stale:
            self._render_later()

    def _placed(self, first: int) -> None:
        """Count the lines again from an entry on."""
        at = self._starts[first]
        for place in range(first, len(self.entries)):
            self._starts[place] = at
            at += len(self.entries[place].strips)
        self._lines = at

    def _measured(self) -> None:
        """Tell the screen how many lines there are, and stay at the end if that is where one looks."""
        follows = self._follows
        self.virtual_size = Size(self._wide, self._lines)
        self._follows = follows
        self._follow()
        self.refresh()

    def _follow(self) -> None:
        if self._follows:
            self.scroll_end(animate=False, immediate=True, x_axis=False)
