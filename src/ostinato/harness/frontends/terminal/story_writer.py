"""The entries of the story: messages as Markdown, calls, their output, edits and diffs, each also as text."""

import time
from collections.abc import Callable

from rich.console import RenderableType
from rich.text import Text
from textual.strip import Strip

from ostinato.harness.conversation import Edit
from ostinato.harness.execute import ToolResult
from ostinato.harness.frontends.screen import SHOWN_LINES, shortened
from ostinato.harness.frontends.terminal.diffs import counted, diff_of, shown_diff
from ostinato.harness.frontends.terminal.markdown import GrowingMarkdown
from ostinato.harness.frontends.terminal.story import Entry, Story
from ostinato.harness.tools.names import shown
from ostinato.harness.users import visible

FLUSH_S = 0.05
"""Seconds at least between two renderings of a text that grows."""
SHARE = 4.0
"""A rendering is followed by so many times its own time without one, so that keys are answered meanwhile."""
MOST_LINES = 2_000
"""The lines of an output that is opened; the session's log has all."""
LONG_DIFF = 40
"""Lines of a diff from which on it is folded."""
OPENS = "ctrl+o opens"


class StoryWriter:
    """Adds entries to a story, and keeps what each says as text."""

    def __init__(self, *, dark: bool) -> None:
        self.story: Story
        self.transcript: list[str] = []
        """Every entry, as text."""
        self.later = False
        """True while a recorded session is shown again: its entries are rendered when there is time."""
        self._dark = dark
        self._pieces: list[str] = []
        self._growing: Entry | None = None
        self._of_call = False
        self._stale = False
        self._next = 0.0

    def asked(self, line: str) -> None:
        """Show what the person said."""
        self._put(f"> {line}", Text(f"> {visible(line)}", style="bold"))

    def say(self, text: str, style: str = "") -> None:
        """Show a line of the program itself."""
        self._put(text, Text(visible(text), style=style))

    def answered(self, text: str) -> None:
        """Show the answer to a command, which may be a diff."""
        is_diff = text.startswith("diff --git ")
        self._put(text, shown_diff(text, dark=self._dark) if is_diff else Text(visible(text)))

    def text(self, piece: str) -> None:
        """Go on with the message of the model."""
        if self._growing is None or self._of_call:
            self._begin(of_call=False)
        self._grow(piece)

    def output(self, piece: str) -> None:
        """Go on with the output of a command."""
        if self._growing is None or not self._of_call:
            self._begin(of_call=True)
        self._grow(piece.replace("\r\n", "\n"))

    def ended(self) -> None:
        """End the message or the output that grew."""
        self.flush(now=True)
        self._growing = None

    def call(self, headline: str) -> None:
        self.ended()
        self._put(headline, Text(headline, style="bold cyan"))

    def edited(self, edit: Edit) -> None:
        """Show the diff of an edit."""
        self.ended()
        diff = diff_of(edit)
        changed = f"  changed {shown(edit.path)}"
        self._foldable(changed, diff, Text(visible(changed), style="green"), files=False)

    def changed(self, diff: str) -> None:
        """Show, folded, all that a request changed."""
        self.ended()
        if diff:
            title = Text(f"changed {counted(diff)} ({OPENS})", style="green")
            whole = shown_diff(diff, dark=self._dark)
            self._put(diff, whole, folded=title)

    def result(self, observation: ToolResult) -> None:
        """Show what a call returned, unless its output was shown while it ran."""
        streamed = self._growing is not None and self._of_call
        self.ended()
        if not streamed or observation.error is not None:
            lines = visible(observation.text.replace("\r\n", "\n")).split("\n")
            style = "red" if observation.error else "dim"
            folded = "\n".join("  " + line for line in shortened(observation))
            whole = "\n".join("  " + line for line in _most(lines))
            is_long = len(lines) > SHOWN_LINES
            self._put(
                folded,
                Text(whole, style=style),
                folded=Text(f"{folded} ({OPENS})", style=style) if is_long else None,
            )

    def flush(self, *, now: bool = False) -> None:
        """Show the pieces that came since the last time, unless that was a moment ago."""
        entry, began = self._growing, time.monotonic()
        if entry is None or not self._stale or (began < self._next and not now):
            return
        self._stale = False
        self.transcript[-1] = "".join(self._pieces)
        if self._of_call:
            self._fold_output(entry)
        if self.later:
            entry.width = 0
        else:
            self.story.change(entry)
        spent = time.monotonic() - began
        self._next = began + max(FLUSH_S, SHARE * spent)

    def _begin(self, *, of_call: bool) -> None:
        self.ended()
        self._pieces, self._of_call = [], of_call
        shown: RenderableType | Callable[[int], list[Strip]] = Text("") if of_call else self._message()
        self._growing = self._put("", shown)

    def _message(self) -> Callable[[int], list[Strip]]:
        growing, pieces = GrowingMarkdown(dark=self._dark), self._pieces

        def lines(width: int) -> list[Strip]:
            return growing.lines(visible("".join(pieces)).strip("\n"), self.story.app.console, width)

        return lines

    def _grow(self, piece: str) -> None:
        self._pieces.append(piece)
        self._stale = True
        self.flush()

    def _fold_output(self, entry: Entry) -> None:
        """Show the last lines of an output, and all of it once it is opened."""
        lines = visible("".join(self._pieces)).rstrip("\n").split("\n")
        entry.whole = Text("\n".join(_most(lines)), style="dim")
        hidden = len(lines) - SHOWN_LINES
        if hidden > 0:
            shown = [f"… {hidden} lines before ({OPENS})", *lines[-SHOWN_LINES:]]
            entry.folded = Text("\n".join(shown), style="dim")

    def _foldable(self, text: str, diff: str, title: Text, *, files: bool) -> None:
        body = shown_diff(diff, dark=self._dark, files=files)
        whole = Text.assemble(title, "\n", body) if body else title
        is_long = diff.count("\n") > LONG_DIFF
        folded = Text.assemble(title, f" {counted(diff)} ({OPENS})") if is_long else None
        self._put(text, whole, folded=folded)

    def _put(
        self,
        text: str,
        whole: RenderableType | Callable[[int], list[Strip]],
        *,
        folded: RenderableType | None = None,
    ) -> Entry:
        self.transcript.append(text)
        return self.story.add(Entry(whole=whole, folded=folded), later=self.later)


def _most(lines: list[str]) -> list[str]:
    more = [f"… {len(lines) - MOST_LINES} more lines are in the session's log"]
    return lines[:MOST_LINES] + (more if len(lines) > MOST_LINES else [])
