"""Agent Trace 0.1.0 records (`application/vnd.agent-trace.record+json`): which lines who wrote.

One record when an edit is accepted, without a revision, for its lines are in none yet (the commit it was made
on is in the metadata); one when it is committed, with that commit. They lie below .git; records that others
keep in `.agent-trace/traces.jsonl` are read too.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ostinato import __version__
from ostinato.edits.follow.edit import FollowedEdit, live
from ostinato.edits.follow.measure import Measured

VERSION = "0.1.0"
VENDOR = "dev.ostinato"
OURS = ("", "ostinato", "ostinato-code")
FILE = "traces.jsonl"
SHARED = Path(".agent-trace") / FILE
"""Where the reference implementation of the format keeps its records, in the work tree."""


class Contributor(StrEnum):
    HUMAN = "human"
    AI = "ai"
    MIXED = "mixed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Lines [start, end], from 1, of a file at a commit, and who wrote them.

    >>> Range(path="a.py", start=1, end=2, contributor=Contributor.AI, revision=None).model
    ''
    """

    path: str
    start: int
    end: int
    contributor: Contributor
    revision: str | None
    model: str = ""
    content_hash: str = ""
    conversation: str = ""


Record = dict[str, Any]


def of_proposal(edit: FollowedEdit) -> Record:
    """Of an accepted edit: the lines it proposed."""
    ranges = [(hunk.b1 + 1, hunk.b2) for hunk in live(edit) if hunk.b2 > hunk.b1]
    told = _ranges(ranges, edit.lines())
    return _record(edit, edit.path, told, who=Contributor.AI, revision=None, at=edit.proposed_at)


def of_commit(edit: FollowedEdit, found: Measured, lines: Sequence[str], commit: str, at: float) -> Record:
    """Of a commit: the lines that are left of it there; `mixed` when somebody changed them."""
    who = Contributor.AI if found.kept else Contributor.MIXED
    return _record(edit, found.path, _ranges(found.lines, lines), who=who, revision=commit, at=at)


def append(state: Path, record: Record) -> None:
    """Adds a record; one without ranges says nothing and is left out."""
    if record["files"][0]["conversations"][0]["ranges"]:
        handle = os.open(state / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(json.dumps(record) + "\n")


def read(path: Path) -> list[Range]:
    """The ranges of every record of a file; lines and records that cannot be read are passed over."""
    if not path.is_file():
        return []
    found: list[Range] = []
    for line in path.read_text(errors="replace").splitlines():
        try:
            found += ranges_of(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def ranges_of(record: Record) -> list[Range]:
    """The ranges of one record. Raises KeyError, TypeError or ValueError for what is none."""
    revision = (record.get("vcs") or {}).get("revision")
    return [
        _range(file["path"], talk, lines, revision)
        for file in record["files"]
        for talk in file["conversations"]
        for lines in talk["ranges"]
    ]


def _range(path: str, talk: Record, lines: Record, revision: str | None) -> Range:
    who = lines.get("contributor") or talk.get("contributor") or {"type": "unknown"}
    return Range(
        path=path,
        start=int(lines["start_line"]),
        end=int(lines["end_line"]),
        contributor=Contributor(who["type"]),
        revision=revision,
        model=who.get("model_id", ""),
        content_hash=lines.get("content_hash", ""),
        conversation=talk.get("url", ""),
    )


def _record(
    edit: FollowedEdit, path: str, ranges: list[Record], *, who: Contributor, revision: str | None, at: float
) -> Record:
    contributor = {"type": who.value} | ({"model_id": edit.model[:250]} if edit.model else {})
    talk = {
        "url": f"urn:ostinato:session:{quote(edit.session_id, safe='')}",
        "contributor": contributor,
        "ranges": ranges,
    }
    known = {"vcs": {"type": "git", "revision": revision}} if revision else {}
    return {
        "version": VERSION,
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{edit.id}/{revision}/{who.value}")),
        "timestamp": datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z"),
        **known,
        "tool": {
            "name": edit.agent or "ostinato",
            "version": __version__ if edit.agent in OURS else "unknown",
        },
        "files": [{"path": path, "conversations": [talk]}],
        "metadata": {VENDOR: _metadata(edit)},
    }


def _metadata(edit: FollowedEdit) -> Record:
    return {
        "edit_id": edit.id,
        "session_id": edit.session_id,
        "turn": edit.turn,
        "base_revision": edit.base,
    }


def _ranges(places: Sequence[tuple[int, int]], lines: Sequence[str]) -> list[Record]:
    return [
        {"start_line": first, "end_line": last, "content_hash": content_hash(lines[first - 1 : last])}
        for first, last in places
    ]


def content_hash(lines: Sequence[str]) -> str:
    """Of lines without their ends, wherever they stand."""
    text = "\n".join(line.rstrip("\r\n") for line in lines)
    return "sha256:" + hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:32]
