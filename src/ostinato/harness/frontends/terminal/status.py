"""The line at the bottom: what goes on and since when, and how full the context is."""

from dataclasses import dataclass

from rich.text import Text

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_S = 0.1
BAR = 10
"""The cells of the bar."""
WARN, ALARM = 0.7, 0.9
"""The shares of the context from which on the bar has another colour."""
NARROW = 60
"""Columns below which the bar and the session are left out."""


@dataclass(slots=True, kw_only=True)
class Activity:
    """The present work of the agent.

    >>> Activity(doing="thinking", since=3.0).words(15.4)
    '⠼ thinking 12 s'
    """

    doing: str = ""
    since: float = 0.0
    pieces: int = 0
    """The pieces of text that came since then, each about a token."""
    moves: bool = True
    """False while it waits for a person."""

    def words(self, now: float) -> str:
        if not self.doing or not self.moves:
            return self.doing
        spent = max(0.0, now - self.since)
        frame = FRAMES[int(spent / FRAME_S) % len(FRAMES)]
        tokens = f", about {self.pieces:,} tokens" if self.pieces else ""
        return f"{frame} {self.doing} {spent:.0f} s{tokens}"


def bar(share: float) -> str:
    """Return a bar of the share of the context that is used.

    >>> bar(0.31)
    '▰▰▰▱▱▱▱▱▱▱'
    """
    full = min(BAR, max(0, round(share * BAR)))
    return "▰" * full + "▱" * (BAR - full)


def status(session: str, fullness: str, share: float, activity: str, width: int) -> Text:
    """Return the line: the session, the context and the activity, as far as they have room."""
    style = "bold red" if share >= ALARM else "yellow" if share >= WARN else ""
    shown = Text(no_wrap=True, overflow="ellipsis")
    if width >= NARROW:
        shown.append(f"session {session} · ")
        shown.append(f"{bar(share)} ", style=style)
    shown.append(fullness, style=style)
    if activity:
        shown.append(f" · {activity}")
    return shown
