"""The list of earlier sessions, one of which a person chooses."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ostinato.harness.frontends.sessions import summary
from ostinato.harness.session_log import LogEvent
from ostinato.harness.users import visible

MOST_SESSIONS = 30
"""The earlier sessions that are listed."""


class EarlierSessions(OptionList):
    """The list, which is hidden until it is offered."""

    @dataclass
    class Chosen(Message):
        """A person chose a session."""

        session_id: str

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, markup=False)
        self.border_title = "go on with: Enter chooses, Esc goes back"
        self.display = False

    def offer(self, earlier: Iterable[tuple[str, Sequence[LogEvent]]]) -> bool:
        """List the newest sessions and take the keys; return False, and stay hidden, where there is none."""
        self.clear_options()
        for name, events in islice(earlier, MOST_SESSIONS):
            began, _, *more = [*summary(events), "", ""]
            self.add_option(Option(visible("  ".join([began, *more]).rstrip()), id=name))
        if not self.option_count:
            return False
        self.highlighted = 0
        self.display = True
        self.focus()
        return True

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Chosen(event.option.id or ""))
