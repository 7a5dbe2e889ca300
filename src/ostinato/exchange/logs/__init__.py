"""Logs of other programs, a file a format. `importing` comes in, by LOGS.

Each reader yields sessions as they were said, and the lines that it cannot read; it never raises for a log.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ostinato.exchange.logs import calls, claude_code, codex, opencode
from ostinato.exchange.logs.base import Read


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat:
    """The logs of one program.

    >>> LogFormat(read=codex.read, names=("rollout-*.jsonl",)).home is None
    True
    """

    read: Read
    names: tuple[str, ...]
    """The names of its files below a folder."""
    home: Callable[[], Path] | None = None
    """The place of a person's own; None where there is none."""


def _below(variable: str, default: str, *rest: str) -> Callable[[], Path]:
    return lambda: Path(os.environ.get(variable) or Path.home() / default, *rest)


LOGS: Mapping[str, LogFormat] = {
    "claude-code": LogFormat(
        read=claude_code.read, names=("*.jsonl",), home=_below("CLAUDE_CONFIG_DIR", ".claude", "projects")
    ),
    "codex": LogFormat(
        read=codex.read, names=("rollout-*.jsonl",), home=_below("CODEX_HOME", ".codex", "sessions")
    ),
    "opencode": LogFormat(
        read=opencode.read,
        names=("opencode*.db", "*.json"),
        home=_below("XDG_DATA_HOME", ".local/share", "opencode", "opencode.db"),
    ),
    "litellm": LogFormat(read=calls.litellm, names=("*.jsonl", "*.json")),
    "langfuse": LogFormat(read=calls.langfuse, names=("*.jsonl", "*.json")),
}
"""The formats by the name that `ostinato import` takes."""
