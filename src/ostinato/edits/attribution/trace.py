"""Agent Trace 0.1.0 records (`application/vnd.agent-trace.record+json`): the authors of lines.

An accepted edit has a record without a revision, since no commit holds its lines yet (the commit on which
it was made is in the metadata). When it is committed, it has another one, with that commit. The records lie
below .git; those that other tools keep in `.agent-trace/traces.jsonl` are read too.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import SequenceMatcher
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ostinato import __version__
from ostinato.edits.follow.edit import FollowedEdit, live
from ostinato.edits.follow.measure import MeasuredEdit

VERSION = "0.1.0"
VENDOR = "dev.ostinato"
OURS = ("", "ostinato", "ostinato-code")
FILE = "traces.jsonl"
SHARED = Path(".agent-trace") / FILE
"""The file, in the work tree, in which the reference implementation of the format keeps its records."""


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
    """Return the record of an accepted edit: the lines that it proposed."""
    ranges = [(hunk.b1 + 1, hunk.b2) for hunk in live(edit) if hunk.b2 > hunk.b1]
    return _record(
        edit, edit.path, _ranges(ranges, edit.lines()), who=Contributor.AI, revision=None, at=edit.proposed_at
    )


def of_commit(
    edit: FollowedEdit, measured: MeasuredEdit, lines: Sequence[str], commit: str, at: float
) -> Record:
    """Return the record of a committed edit: its lines that are left, by who wrote each of them.

    The whole is `mixed` when somebody changed it; the lines that nobody changed are `ai` all the same.
    """
    who = Contributor.AI if measured.kept else Contributor.MIXED
    ranges = _ranges(measured.lines, lines) if measured.kept else _by_author(edit, measured, lines)
    return _record(edit, measured.path, ranges, who=who, revision=commit, at=at)


def _by_author(edit: FollowedEdit, measured: MeasuredEdit, lines: Sequence[str]) -> list[Record]:
    """Return the ranges of lines that were left as proposed, `ai`, and of those put in their place, `mixed`.

    Lines that stand between proposed ones and in the place of none were written by somebody else: they have
    no range.
    """
    all_proposed = edit.lines()
    proposed = [_bare(line) for hunk in live(edit) for line in all_proposed[hunk.b1 : hunk.b2]]
    ranges = []
    for first, last in measured.lines:
        now = [_bare(line) for line in lines[first - 1 : last]]
        for change, _, _, start, end in SequenceMatcher(None, proposed, now, autojunk=False).get_opcodes():
            if change in {"equal", "replace"}:
                who = Contributor.AI if change == "equal" else Contributor.MIXED
                (found,) = _ranges([(first + start, first + end - 1)], lines)
                model = {"model_id": edit.model[:250]} if edit.model else {}
                ranges.append(found | {"contributor": {"type": who.value} | model})
    return ranges


def append(state: Path, record: Record) -> None:
    """Append a record. One without ranges says nothing and is left out."""
    if record["files"][0]["conversations"][0]["ranges"]:
        handle = os.open(state / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(json.dumps(record) + "\n")


def read(path: Path) -> list[Range]:
    """Return the ranges of every record of a file. Lines and records that cannot be read are skipped."""
    if not path.is_file():
        return []
    ranges: list[Range] = []
    for line in path.read_text(errors="replace").splitlines():
        try:
            ranges += ranges_of(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return ranges


def ranges_of(record: Record) -> list[Range]:
    """Return the ranges of one record. Raise KeyError, TypeError or ValueError for a value that is none."""
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
    """Return the hash of lines without their ends, which does not depend on their place."""
    text = "\n".join(map(_bare, lines))
    return "sha256:" + hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:32]


def _bare(line: str) -> str:
    """Return a line without its end."""
    return line.rstrip("\r\n")
