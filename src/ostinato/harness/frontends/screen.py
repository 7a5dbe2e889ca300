"""The screen in plain lines: prints a session as it happens, to a terminal or elsewhere."""

from pathlib import Path

from rich.console import Console
from rich.syntax import Syntax

from ostinato.harness.client import Reply
from ostinato.harness.conversation import Call, Edit
from ostinato.harness.execute import ToolResult
from ostinato.harness.profiles.profile import named_by
from ostinato.harness.tools.names import shown
from ostinato.harness.users import visible

SHOWN_LINES = 12
MARKS = {"pending": "○", "in_progress": "◐", "completed": "●"}


def at_home(path: Path) -> str:
    """Return a path as a person writes it: `~` for their home.

    >>> at_home(Path.home() / "stats")
    '~/stats'
    """
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)


def headline(call: Call) -> str:
    """Return a call in one line."""
    arguments = call.meant.arguments
    subject = "" if call.tool == "todo_write" else str(next(iter(arguments.values()), ""))
    first, _, rest = visible(subject).partition("\n")
    return f"● {visible(call.tool)} {first}{' …' if rest else ''}".rstrip()


def plan(call: Call) -> list[str]:
    """Return the lines of the plan that a `todo_write` call holds; none for another call."""
    if call.tool != "todo_write" or call.meant.error is not None:
        return []
    return [
        f"{MARKS.get(todo['status'], '?')} {visible(todo['content'])}"
        for todo in call.meant.arguments["todos"]
    ]


def shortened(observation: ToolResult) -> list[str]:
    """Return the first lines of a result that the model read."""
    lines = visible(observation.text.replace("\r\n", "\n")).split("\n")
    more = [f"… {len(lines) - SHOWN_LINES} more lines"] if len(lines) > SHOWN_LINES else []
    return lines[:SHOWN_LINES] + more


class Screen:
    """An Observer that prints to a console.

    The output of a command is shown while it runs, and not again when it ends.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._open_line = False
        self._streamed = False
        self._warned = False

    def text(self, piece: str) -> None:
        self._raw(piece)

    def reply(self, reply: Reply) -> None:
        self._end_line()
        if reply.trained_under is not None and not self._warned:
            self._warned = True
            self.say(f"ostinato: {named_by(reply.trained_under)}", "yellow")

    def call(self, call: Call) -> None:
        self._streamed = False
        self._console.print(headline(call), style="bold cyan", markup=False)
        for line in plan(call):
            self._console.print(f"  {line}", markup=False)

    def output(self, call: Call, piece: str) -> None:
        self._streamed = True
        self._raw(piece, style="dim")

    def edited(self, call: Call, edit: Edit) -> None:
        self._end_line()
        self._console.print(f"  changed {shown(edit.path)}", style="green", markup=False)

    def result(self, call: Call, observation: ToolResult) -> None:
        self._end_line()
        if self._streamed and observation.error is None:
            return
        style = "red" if observation.error else "dim"
        lines = "\n".join("  " + line for line in shortened(observation))
        self._console.print(lines, style=style, markup=False)

    def say(self, text: str, style: str = "") -> None:
        self._end_line()
        self._console.print(text, style=style or None, markup=False, soft_wrap=True)

    def prompt(self, text: str) -> None:
        self._end_line()
        self._console.print(text, end="", style="bold", markup=False)
        self._console.file.flush()

    def diff(self, text: str) -> None:
        self._end_line()
        if text:
            self._console.print(
                Syntax(visible(text).rstrip("\n"), "diff", background_color="default", word_wrap=True)
            )
        else:
            self._console.print("no file was changed", style="dim")

    def _raw(self, piece: str, style: str | None = None) -> None:
        if piece:
            text = visible(piece.replace("\r\n", "\n"))
            self._console.print(text, end="", style=style, markup=False, highlight=False, soft_wrap=True)
            self._open_line = not piece.endswith("\n")

    def _end_line(self) -> None:
        if self._open_line:
            self._console.print()
        self._open_line = False
