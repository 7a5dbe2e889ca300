"""A recorded session, shown again as it was: by a screen of plain lines, or by the full one."""

from collections.abc import Iterable
from typing import Protocol

from ostinato.harness.client import Reply
from ostinato.harness.conversation import Call
from ostinato.harness.errors import ToolError
from ostinato.harness.execute import ToolResult
from ostinato.harness.profiles.offers import Reading
from ostinato.harness.session_log import LogEvent, LogEventKind
from ostinato.harness.tools.names import shown


class Replayed(Protocol):
    """The part of a screen by which a session is shown again."""

    def text(self, piece: str) -> None: ...
    def reply(self, reply: Reply) -> None: ...
    def call(self, call: Call) -> None: ...
    def result(self, call: Call, observation: ToolResult) -> None: ...
    def say(self, text: str, style: str = "") -> None: ...


def show_again(events: Iterable[LogEvent], screen: Replayed) -> None:
    """Show the events of a session, in their order."""
    calls: dict[str, Call] = {}
    for event in events:
        _show(event, screen, calls)


def recorded_call(event: LogEvent) -> Call:
    """Return the call that an event of this kind holds."""
    data = event.data
    meant = Reading(tool=data["tool"], arguments=data["arguments"])
    return Call(id=data["id"], name=data["name"], arguments=data["arguments"], meant=meant)


def _show(event: LogEvent, screen: Replayed, calls: dict[str, Call]) -> None:
    data = event.data
    match event.kind:
        case LogEventKind.USER:
            screen.say(f"> {data['text']}", "bold")
        case LogEventKind.REPLY:
            screen.text(data["message"]["content"] or "")
            screen.reply(Reply(message=data["message"], finish=data["finish"], tokens=data["tokens"]))
        case LogEventKind.CALL:
            calls[data["id"]] = call = recorded_call(event)
            screen.call(call)
        case LogEventKind.ANSWERED:
            words = f", {data['words']}" if data.get("words") else ""
            screen.say(f"  permitted: {data['grant']}{words}", "yellow")
        case LogEventKind.OBSERVATION if data["id"] in calls:
            error = None if data["error"] is None else ToolError(data["text"])
            screen.result(calls[data["id"]], ToolResult(text=data["text"], error=error))
        case LogEventKind.CANCELLED:
            screen.say("interrupted", "yellow")
        case LogEventKind.UNDO:
            screen.say(f"  took back {', '.join(map(shown, data['restored']))}", "yellow")
