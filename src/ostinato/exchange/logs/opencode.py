"""Sessions of opencode: its database `~/.local/share/opencode/opencode.db`, or a file of `opencode export`.

A step of an assistant's message is one answer with its calls, whose results stand in the same parts.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ostinato.exchange.logs.base import Damage, Transcript, call

MS = 1_000


def read(paths: Sequence[Path]) -> Iterator[Transcript | Damage]:
    """Yield the sessions of each database and of each exported file."""
    for path in paths:
        try:
            yield from (
                _database(path) if path.suffix == ".db" else _session(path, json.loads(path.read_text()))
            )
        except (OSError, ValueError, KeyError, TypeError, sqlite3.Error) as error:
            yield Damage(file=path, line=0, why=f"is no database and no export of opencode: {error}")


def _database(path: Path) -> Iterator[Transcript | Damage]:
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as database:
        for id, version in database.execute("SELECT id, version FROM session ORDER BY time_created, id"):
            parts: dict[str, list[str]] = {}
            for message, data in database.execute(
                "SELECT message_id, data FROM part WHERE session_id = ? ORDER BY time_created, id", (id,)
            ):
                parts.setdefault(message, []).append(data)
            query = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
            messages = [
                {"info": data, "parts": parts.get(name, []), "id": name}
                for name, data in database.execute(query, (id,))
            ]
            yield from _session(path, {"info": {"id": id, "version": version}, "messages": messages})


def _session(path: Path, exported: dict[str, Any]) -> Iterator[Transcript | Damage]:
    info = exported["info"]
    session = Transcript(id=info["id"], client=f"opencode {info['version']}")
    for place, message in enumerate(exported["messages"], 1):
        try:
            said, parts = _read(message["info"]), [_read(part) for part in message["parts"]]
            _take(said, parts, message.get("id") or said["id"], session)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            yield Damage(file=path, line=place, why=f"message {place} of {session.id}: {error!r}")
    if session.answers:
        yield session


def _read(value: Any) -> dict[str, Any]:
    """Return an object, which the database keeps as its text."""
    read = json.loads(value) if isinstance(value, str) else value
    if not isinstance(read, dict):
        raise TypeError(f"no JSON object: {read!r:.60}")
    return read


def _take(info: dict[str, Any], parts: Sequence[dict[str, Any]], id: str, session: Transcript) -> None:
    at, step = info["time"]["created"] / MS, 0
    if info["role"] == "user":
        texts = [part["text"] for part in parts if part["type"] == "text" and not part.get("ignored")]
        if texts:
            session.add("user", "\n".join(texts), at)
        return
    session.model = session.model or info["modelID"]
    for part in parts:
        if part["type"] == "step-start":
            step += 1
        elif part["type"] == "text" and part["text"]:
            session.answer(part["text"], (), at, f"{id}/{step}")
        elif part["type"] == "tool":
            state = part["state"]
            session.answer("", [call(part["callID"], part["tool"], state["input"])], at, f"{id}/{step}")
            if state["status"] in {"completed", "error"}:
                session.result(
                    part["callID"], state["output" if state["status"] == "completed" else "error"], at
                )
