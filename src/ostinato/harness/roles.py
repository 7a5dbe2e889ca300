"""The roles that others play for the agent: its model, an observer, and a keeper of changed files."""

from collections.abc import Callable
from typing import Protocol

from ostinato.harness.client import Ask, Reply
from ostinato.harness.conversation import Call, Edit
from ostinato.harness.execute import ToolResult
from ostinato.types import Signal


class ModelClient(Protocol):
    """The part of a gateway's client that the agent uses."""

    async def reply(self, ask: Ask, on_text: Callable[[str], None] | None = None) -> Reply: ...

    async def signal(self, signal: Signal) -> None: ...


class Observer(Protocol):
    """An observer of a session as it happens. Calls have their canonical names, whatever the profile."""

    def text(self, piece: str) -> None:
        """Show a piece of the reply in progress."""
        ...

    def reply(self, reply: Reply) -> None:
        """Take the whole reply, whose text was shown already."""
        ...

    def call(self, call: Call) -> None: ...

    def edited(self, call: Call, edit: Edit) -> None:
        """Show a file that the call changed; only sessions with a keeper report it."""
        ...

    def output(self, call: Call, piece: str) -> None:
        """Show a piece of a running command's output; `result` has the text that the model reads."""
        ...

    def result(self, call: Call, observation: ToolResult) -> None: ...


class Frontend(Observer, Protocol):
    """An observer that shows lines of the program itself, too."""

    def say(self, text: str, style: str = "") -> None: ...


class Keeper(Protocol):
    """A keeper of the files that calls change, so that changes can be undone."""

    async def before(self, call: Call) -> str | None:
        """Take a checkpoint; None for a call that changes nothing."""
        ...

    async def after(self, call: Call, checkpoint: str) -> list[Edit]:
        """Return the edits since the checkpoint."""
        ...
