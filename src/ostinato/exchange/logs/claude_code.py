"""Sessions of Claude Code: `~/.claude/projects/PROJECT/SESSION.jsonl`, one line a message or note.

An answer is several lines with one message id, and results of its calls may stand between. A subagent is a
session of its own. Thinking is left out: only its signature would let the same model read it again.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ostinato.exchange.logs.base import Damage, Transcript, call, each_line, moment, text_of


def read(paths: Sequence[Path]) -> Iterator[Transcript | Damage]:
    """Yield the sessions of each file."""
    for path in paths:
        found: dict[str, Transcript] = {}
        yield from each_line(path, lambda line, found=found: _take(line, found))  # type: ignore[misc]
        yield from found.values()


def _take(line: dict[str, Any], found: dict[str, Transcript]) -> None:
    if line.get("type") not in {"user", "assistant"} or line.get("isApiErrorMessage"):
        return
    id, at = line["sessionId"], moment(line["timestamp"])
    if line.get("isSidechain"):
        id = f"{id}/{line.get('agentId', 'side')}"
    session = found.setdefault(id, Transcript(id=id, client=f"claude-code {line['version']}"))
    message = line["message"]
    if line.get("isCompactSummary"):
        session.restart()
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    said = text_of([part for part in parts if part["type"] not in {"tool_use", "tool_result", "thinking"}])
    if line["type"] == "user":
        for part in parts:
            if part["type"] == "tool_result":
                session.result(part["tool_use_id"], text_of(part.get("content")), at)
        if said:
            session.add("user", said, at)
        return
    calls = [call(part["id"], part["name"], part["input"]) for part in parts if part["type"] == "tool_use"]
    if said or calls:
        session.model = session.model or message["model"]
        session.answer(said, calls, at, message["id"])
