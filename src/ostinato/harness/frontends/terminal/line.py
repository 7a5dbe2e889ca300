"""The field in which a person types: several lines, what was typed before, and what completes a word."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static, TextArea

from ostinato.harness.frontends.terminal.completion import Candidates
from ostinato.harness.frontends.terminal.history import LineHistory

NEW_LINE = {"ctrl+j", "shift+enter", "alt+enter"}


class Choices(Static):
    """The words that complete what stands before the cursor; one of them is chosen."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, markup=False)
        self.found: Candidates | None = None
        self.place = 0
        self.display = False

    def show(self, found: Candidates | None) -> None:
        """Show what completes, or nothing."""
        self.found, self.place = found, 0
        self._draw()

    def move(self, by: int) -> None:
        """Choose the next word, or the one before."""
        if self.found is not None:
            self.place = (self.place + by) % len(self.found.words)
            self._draw()

    def _draw(self) -> None:
        self.display = self.found is not None
        if self.found is None:
            return
        shown = Text(no_wrap=True, overflow="ellipsis")
        wide = max(map(len, self.found.words))
        for place, (word, note) in enumerate(zip(self.found.words, self.found.notes, strict=True)):
            mark, style = ("› ", "bold reverse") if place == self.place else ("  ", "")
            shown.append("\n" if place else "")
            shown.append(f"{mark}{word:<{wide}}", style=style)
            shown.append(f"  {note}" if note else "", style="dim")
        self.update(shown)


class PromptLine(TextArea):
    """The field. Enter sends, Ctrl-J or a backslash before Enter begins a line."""

    @dataclass
    class Submitted(Message):
        """A person sent a text."""

        text: str

    DEFAULT_CSS = """
    PromptLine { height: auto; min-height: 1; max-height: 10; border: none; padding: 0 1; }
    PromptLine:focus { border: none; }
    """
    inherit_bindings: ClassVar[bool] = True

    def __init__(
        self,
        choices: Choices,
        history: LineHistory,
        complete: Callable[[str], Candidates | None],
        asked: Callable[[events.Key], str | None],
        *,
        id: str,
    ) -> None:
        """Make the field. `asked` takes a key of the empty line for a question, and returns what stands in
        the line then; None where no question wants the key.
        """
        super().__init__(
            id=id, compact=True, highlight_cursor_line=False, placeholder="> ", tab_behavior="focus"
        )
        self._choices = choices
        self._history = history
        self._complete = complete
        self._asked = asked

    async def _on_key(self, event: events.Key) -> None:
        begun = None if self.text else self._asked(event)
        if begun is not None:
            self.put(begun)
        if begun is not None or self._handled(event.key):
            event.stop()
            event.prevent_default()
        else:
            await super()._on_key(event)

    def _handled(self, key: str) -> bool:
        if self._choices.found is not None and self._chosen(key):
            return True
        if key in NEW_LINE:
            self.insert("\n")
        elif key == "enter":
            self._enter()
        elif key == "up" and self.cursor_at_first_line:
            self._recall(self._history.back(self.text))
        elif key == "down" and self.cursor_at_last_line:
            self._recall(self._history.forward())
        else:
            return False
        return True

    def _chosen(self, key: str) -> bool:
        """Use a key for the words that complete; return False for any other key."""
        found = self._choices.found
        assert found is not None
        if key in {"up", "down"}:
            self._choices.move(-1 if key == "up" else 1)
        elif key in {"tab", "enter"}:
            row, column = self.cursor_location
            word = found.words[self._choices.place]
            self.replace(f"{word} ", (row, column - found.length), (row, column))
            self._choices.show(None)
        elif key == "escape":
            self._choices.show(None)
        else:
            return False
        return True

    def _enter(self) -> None:
        row, column = self.cursor_location
        if self.get_text_range((row, 0), (row, column)).endswith("\\"):
            self.replace("\n", (row, column - 1), (row, column))
            return
        text = self.text
        self.clear()
        self._history.add(text)
        self.post_message(self.Submitted(text))

    def _recall(self, text: str | None) -> None:
        if text is not None:
            self.put(text)

    def put(self, text: str) -> None:
        """Replace what stands here, with the cursor at the end."""
        self.load_text(text)
        self.move_cursor(self.document.end)
        self._choices.show(None)

    def on_text_area_changed(self) -> None:
        before = self.get_text_range((0, 0), self.cursor_location)
        self._choices.show(self._complete(before))
