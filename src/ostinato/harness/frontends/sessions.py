"""The commands `ostinato session …`: list the sessions, show or replay one, export one in another format."""

import argparse
import json
from collections.abc import Sequence
from datetime import datetime

from rich.console import Console

from ostinato.harness.conversation import undone
from ostinato.harness.execute import ToolResult
from ostinato.harness.export import FORMATS
from ostinato.harness.frontends.replay import recorded_call, show_again
from ostinato.harness.frontends.screen import Screen, headline, shortened
from ostinato.harness.session_log import LogError, LogEvent, LogEventKind, Sessions
from ostinato.harness.tools.names import presentable, shown
from ostinato.harness.users import visible

DONE = 0


def list_sessions(options: argparse.Namespace) -> int:
    sessions, console = Sessions.of_user(), _console()
    recorded = list(sessions.newest())
    for session_id, events in recorded:
        console.print("  ".join([session_id, *summary(events)]))
    if not recorded:
        console.print(f"no sessions in {sessions.directory}: `ostinato code` records one")
    return DONE


def show(options: argparse.Namespace) -> int:
    """Print the conversation, each piece below its time and its speaker; with --json, every event."""
    console, events = _console(), _events(options.id)
    if options.json:
        rows = [json.loads(event.line()) for event in events]
        listed = json.dumps({"session": events[0].data.get("id"), "events": rows}, ensure_ascii=False)
        console.print(presentable(listed))
        return DONE
    console.print(f"session {events[0].data.get('id')}  " + "  ".join(summary(events)[:3]))
    for event in events:
        speaker, text = _piece(event)
        if speaker:
            at = datetime.fromtimestamp(event.at).astimezone().strftime("%H:%M:%S")
            console.print(
                f"{at}  {speaker:<11} " + visible(presentable(text)).replace("\n", f"\n{'':22}").rstrip()
            )
    return DONE


def _piece(event: LogEvent) -> tuple[str, str]:
    """Return who speaks, or what happened, and the words; no speaker for what nobody said or did."""
    data = event.data
    match event.kind:
        case LogEventKind.USER:
            return "you", data["text"]
        case LogEventKind.REPLY:
            calls = len(data["message"].get("tool_calls") or ())
            words = data["message"].get("content") or (f"({calls} calls)" if calls else "(nothing)")
            return "agent", f"{words}\n[version {data['version']}, turn {data['turn']}]"
        case LogEventKind.CALL:
            return "call", headline(recorded_call(event)).removeprefix("● ")
        case LogEventKind.ANSWERED:
            return "permission", data["grant"]
        case LogEventKind.OBSERVATION:
            return "error" if data["error"] else "result", "\n".join(shortened(ToolResult(text=data["text"])))
        case LogEventKind.EDIT:
            return "changed", shown(data["path"])
        case LogEventKind.SUMMARY:
            return "summary", data["text"]
        case LogEventKind.UNDO:
            return "undo", undone(data["restored"], data["left"])
        case LogEventKind.CANCELLED:
            return "interrupted", data["reason"]
        case LogEventKind.OUTCOME | LogEventKind.ENDING:
            return event.kind.value, " ".join(filter(None, (data["ending"], data.get("reason"))))
    return "", ""


def replay(options: argparse.Namespace) -> int:
    """Print the session as the frontend in plain lines showed it."""
    show_again(_events(options.id), Screen(Console(highlight=False)))
    return DONE


def export(options: argparse.Namespace) -> int:
    if options.format not in FORMATS:
        raise LogError(f"no format {options.format!r}: use {', '.join(FORMATS)}")
    _console().print(FORMATS[options.format](_events(options.id)))
    return DONE


def _events(session_id: str) -> list[LogEvent]:
    sessions = Sessions.of_user()
    newest = next((name for name, _ in sessions.newest()), "")
    if not session_id and not newest:
        raise LogError(f"no session in {sessions.directory}: `ostinato code` records one")
    meant = sessions.meant(session_id) if session_id else newest
    events = sessions.load(meant)
    if not events:
        raise LogError(f"session {meant} is empty")
    return events


def summary(events: Sequence[LogEvent]) -> list[str]:
    """Return when a session began, where, its turns, and what was asked first."""
    if not events:
        return ["(damaged or empty)"]
    started = datetime.fromtimestamp(events[0].at).astimezone().strftime("%Y-%m-%d %H:%M")
    prompt = next((event.data["text"] for event in events if event.kind is LogEventKind.USER), "")
    replies = sum(event.kind is LogEventKind.REPLY for event in events)
    return [started, str(events[0].data.get("root", "")), f"{replies} turns", prompt.split("\n")[0][:60]]


def _console() -> Console:
    return Console(highlight=False, markup=False, soft_wrap=True, emoji=False)
