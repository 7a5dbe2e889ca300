"""Sessions of Codex: `~/.codex/sessions/YEAR/MONTH/DAY/rollout-….jsonl`, items of the Responses API.

Reasoning is encrypted in them and left out.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ostinato.exchange.logs.base import Damage, Transcript, call, each_line, moment, text_of


def read(paths: Sequence[Path]) -> Iterator[Transcript | Damage]:
    """Yield the session of each file."""
    for path in paths:
        session = Transcript(id="", client="codex")
        yield from each_line(path, lambda line, session=session: _take(line, session))  # type: ignore[misc]
        if session.id and session.answers:
            yield session


def _take(line: dict[str, Any], session: Transcript) -> None:
    kind, item, at = line["type"], line["payload"], moment(line["timestamp"])
    if kind == "session_meta" and not session.id:  # a forked session has those of its ancestors below
        session.id, session.client = item["id"], f"codex {item['cli_version']}"
        if rules := item.get("base_instructions") or item.get("instructions"):
            session.add("system", text_of(rules), at)
    elif kind == "turn_context":
        session.model = session.model or item["model"]
    elif kind == "compacted":
        session.restart()
        session.add("user", item["message"], at)
    elif kind == "response_item":
        _item(item, session, at)


def _item(item: dict[str, Any], session: Transcript, at: float) -> None:
    match item["type"]:
        case "message" if item["role"] == "assistant":
            session.answer(text_of(item["content"]), (), at)
        case "message":
            session.add(item["role"], text_of(item["content"]), at)
        case "function_call":
            session.answer("", [call(item["call_id"], item["name"], item["arguments"])], at)
        case "custom_tool_call":
            session.answer("", [call(item["call_id"], item["name"], {"input": item["input"]})], at)
        case "function_call_output" | "custom_tool_call_output":
            session.result(item["call_id"], text_of(item["output"]), at)
