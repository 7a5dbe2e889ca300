"""The commands `ostinato session …`: list the sessions, show or replay one, export one in another format."""

import argparse
import json
from collections.abc import Sequence
from datetime import datetime

from rich.console import Console

from ostinato.harness.export import FORMATS
from ostinato.harness.frontends.replay import show_again
from ostinato.harness.frontends.screen import Screen
from ostinato.harness.session_log import LogError, LogEvent, LogEventKind, Sessions
from ostinato.harness.tools.names import presentable

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
    """Print one line for each event, with its time."""
    console = _console()
    for event in _events(options.id):
        at = datetime.fromtimestamp(event.at).astimezone().strftime("%H:%M:%S")
        data = {key: value for key, value in event.data.items() if key not in {"system", "tools"}}
        console.print(f"{at} {event.kind.value:<11} {presentable(json.dumps(data, ensure_ascii=False))}")
    return DONE


def replay(options: argparse.Namespace) -> int:
    """Print the session as the frontend in plain lines showed it."""
    show_again(_events(options.id), Screen(Console(highlight=False)))
    return DONE


def export(options: argparse.Namespace) -> int:
    _console().print(FORMATS[options.format](_events(options.id)))
    return DONE


def _events(session_id: str) -> list[LogEvent]:
    sessions = Sessions.of_user()
    newest = next((name for name, _ in sessions.newest()), "")
    if not session_id and not newest:
        raise LogError(f"no session in {sessions.directory}: `ostinato code` records one")
    events = sessions.load(session_id or newest)
    if not events:
        raise LogError(f"session {session_id or newest} is empty")
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
