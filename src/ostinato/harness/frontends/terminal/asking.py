"""The question that waits for the person's answer: of the model, or for permission.

A key answers it while the line is empty: a letter permits or refuses, a number or an arrow chooses an option.
Nothing is answered by what a person typed before they could read it: a key counts once the question has stood
on the screen for SETTLE_S, and what was not shown to its end is not permitted.
"""

import asyncio
import math
import time
from collections.abc import Sequence

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from ostinato.harness.users import numbered, permission_of, visible

SETTLE_S = 0.4
"""The seconds for which a question stands on the screen before one key answers it."""
PERMISSION = "permission"
"""The title over a request for permission."""
KEYS = "[y] once  [a] always  [n] no  [Tab] no, and what to do instead"
DECISIONS = {"y", "a", "n"}
DECLINE = "n, "
"""The beginning of a line that says what to do instead."""


class Asking(VerticalScroll):
    """The question, which is hidden while nothing is asked."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, can_focus=False)
        self._pending: asyncio.Future[str] | None = None
        self._question = ""
        self._options: Sequence[str] = ()
        self._place = -1
        self._readable_at = math.inf

    def compose(self) -> ComposeResult:
        yield Static(id="question", markup=False)

    @property
    def waits(self) -> bool:
        """True while a question has no answer."""
        return self._pending is not None and not self._pending.done()

    async def ask(self, question: str, title: str, options: Sequence[str] = ()) -> str:
        """Return the answer, as a person would type it."""
        self._question, self._options, self._place = question, options, -1
        self.border_title, self.border_subtitle = title, "PageDown and PageUp move in it"
        self._draw()
        self.scroll_home(animate=False)
        self.display, self._readable_at = True, math.inf
        self.call_after_refresh(self._drawn)
        self._pending = asyncio.get_running_loop().create_future()
        try:
            return await self._pending
        finally:
            self._pending, self.display = None, False

    def take(self, text: str) -> None:
        """Give the answer to who waits for it; but what was not shown to its end is not permitted."""
        pending, decision = self._pending, permission_of(text)
        unread = self.max_scroll_y - self.scroll_offset.y
        if pending is None or pending.done():
            return
        permits = self.border_title == PERMISSION and decision is not None and decision.grant.permits
        if permits and unread > 0:
            self.border_subtitle = f"{unread} more lines: PageDown shows them, then answer"
        else:
            pending.set_result(text)

    def pressed(self, event: events.Key) -> str | None:
        """Take a key that came to an empty line; return what stands in the line then, None for a key that is
        not for the question.
        """
        key, is_permission = event.key, self.border_title == PERMISSION
        if not self.waits or event.time < self._readable_at + SETTLE_S:
            return None
        if is_permission and key in DECISIONS:
            self.take(key)
        elif is_permission and key == "tab":
            return DECLINE
        elif key in {"up", "down"} and self._options:
            self._place = (self._place + (1 if key == "down" else -1)) % len(self._options)
            self._draw()
        elif key.isdecimal() and 1 <= int(key) <= len(self._options) <= 9:
            self.take(self._options[int(key) - 1])
        elif key == "enter" and self._place >= 0:
            self.take(self._options[self._place])
        else:
            return None
        return ""

    def _drawn(self) -> None:
        self._readable_at = time.monotonic()

    def _draw(self) -> None:
        shown = Text(visible(self._question))
        for place, option in enumerate(numbered(self._options)):
            chosen = place == self._place
            shown.append(f"\n{'›' if chosen else ' '}{visible(option)[1:]}", style="bold" if chosen else "")
        self.query_one("#question", Static).update(shown)
