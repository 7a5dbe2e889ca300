"""The intake of events from the inbox: it turns them into followed edits and into journal entries."""

import dataclasses
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ostinato.edits.attribution import trace
from ostinato.edits.capture import snapshots, starts
from ostinato.edits.capture.agent_sessions import AgentSessions
from ostinato.edits.capture.repository_paths import find_repository, reflog_of
from ostinato.edits.capture.spool import content, text_of
from ostinato.edits.follow.edit import (
    EarlierLines,
    EditHunk,
    FollowedEdit,
    close,
    edit_id,
    known,
    live,
    opened,
    proposed,
    save,
)
from ostinato.edits.follow.locate import earlier_lines
from ostinato.edits.git import ask, dirty, head_commit
from ostinato.edits.report import entries
from ostinato.edits.report.entries import Hasher, event
from ostinato.edits.report.journal import EventJournal, JournalEntry
from ostinato.edits.report.observe import observe_overwriting
from ostinato.edits.text.align import blocks, follow, split
from ostinato.edits.text.tokens import same_meaning, tokens
from ostinato.types import turn_of_call

Record = dict[str, Any]
SESSION_NAMES = {
    "SessionStart": "session.start",
    "UserPromptSubmit": "user.prompt",
    "SessionEnd": "session.end",
}
STOPS = ("Stop", "SessionEnd")
NO_CHANGE = ("unchanged", "outside", "ignored")
"""The reasons for which an edit changed nothing that a tree of the repository holds."""


class Ingest:
    """Takes events in. An event may come twice, after a crash, and counts once."""

    def __init__(self, state: Path, journal: EventJournal, hashed: Hasher, *, with_text: bool) -> None:
        self._state = state
        self._journal = journal
        self._hashed = hashed
        self._with_text = with_text
        self._sessions = AgentSessions(state)
        self._kinds: Mapping[str, Callable[[Record], None]] = {
            "edit": self._edit,
            "trees": self._trees,
            "session": self._session,
        }

    def take(self, path: str) -> str:
        """Take one event in and remove its file; return its kind.

        Raise ValueError for a file that holds none.
        """
        record = json.loads(Path(path).read_bytes())
        kind = str(record.get("kind")) if isinstance(record, dict) else ""
        if kind in self._kinds:
            self._kinds[kind](record)
        elif kind != "git":
            raise ValueError(f"{path} is no event")
        Path(path).unlink()
        return kind

    def _edit(self, record: Record) -> None:
        why = record["skip"] or self._unfit(record)
        if why not in NO_CHANGE:
            starts.add_edited(str(self._state), record["session_id"], record["path"])
        call = record["tool_use_id"] or record["at"]
        place = record["root"], record["path"]
        identity = edit_id(record["session_id"], call, *place, record["before"], record["after"])
        if why:
            facts = {"edit_id": identity, "reason": why, "tool_name": record["tool"]}
            self._append_event(record, "edit.skipped", identity, facts)
        elif not known(self._state, identity):
            self._follow(self._built(record, identity))

    def _unfit(self, record: Record) -> str:
        """Return why an edit is not followed; empty when it is."""
        for text in (record["before"], record["after"]):
            if text is not None and (why := text_of(text.encode(errors="surrogateescape"))[1]):
                return why
        if record["before"] == record["after"]:
            return "unchanged"
        if None not in (record["before"], record["after"]) and _is_format(record):
            return "formatting"
        outside = record["path"].startswith((".git/", "../")) or record["path"] == ".git"
        ignored = ask(record["root"], "check-ignore", "--quiet", "--", record["path"]) is not None
        return "outside" if outside else "ignored" if ignored else ""

    def _built(self, record: Record, identity: str) -> FollowedEdit:
        base, hunks = _base(record), proposed(record["before"], record["after"])
        return FollowedEdit(
            id=identity,
            session_id=record["session_id"],
            turn=_turn(record),
            tool=record["tool"],
            tool_use_id=record["tool_use_id"],
            root=record["root"],
            path=record["path"],
            before=record["before"],
            after=record["after"],
            hunks=hunks,
            proposed_at=record["at"],
            base=base,
            home=record["home"],
            reflog=record["reflog"],
            anchor=base,
            stashes=tuple(record["stashes"]),
            seen=_seen_elsewhere(record, hunks),
            model=record["model"] or self._sessions.model(record["session_id"]),
            agent=record["agent"],
            head=base,
        )

    def _follow(self, edit: FollowedEdit) -> None:
        new_entries = [entries.of_proposal(edit, self._hashed, with_text=self._with_text)]
        for other in opened(self._state):
            if other.root == edit.root and other.path == edit.path:
                new_entries += self._write_over(other, edit)
        self._journal.append(new_entries)
        trace.append(self._state, trace.of_proposal(edit))
        save(self._state, edit)

    def _write_over(self, other: FollowedEdit, edit: FollowedEdit) -> list[JournalEntry]:
        hunks = _after_overwriting(other, edit)
        if hunks == other.hunks:
            return []
        observation = observe_overwriting(other, edit, hunks)
        if live(observation.edit):
            save(self._state, observation.edit)
        else:
            close(self._state, other.id)
        return observation.entries

    def _trees(self, record: Record) -> None:
        """Take in the files that a command changed, as edits."""
        repo = find_repository(record["root"])
        if repo is None:
            return
        with snapshots.reading(repo) as git:
            for path in _changed(git, record):
                pair = [_blob(git, record, side, path) for side in ("before", "after")]
                texts = {"before": pair[0][0], "after": pair[1][0]}
                skip = next((why for _, why in pair if why != "missing"), "")
                self._edit(record | texts | {"path": path, "skip": skip})

    def _session(self, record: Record) -> None:
        facts = {key: value for key, value in record["told"].items() if isinstance(value, str | int)}
        name = SESSION_NAMES.get(record["name"])
        if name:
            self._append_event(record, name, edit_id(record["session_id"], name, record["at"]), facts)
        if "model" in facts:
            self._sessions.remember(record["session_id"], str(facts["model"]))
        if record["name"] in STOPS:
            self._rejected(record)

    def _rejected(self, record: Record) -> None:
        """Record the calls that began and neither succeeded nor failed: the developer rejected them."""
        for path, call in self._sessions.unanswered(record["session_id"]):
            if "path" in call:
                identity = edit_id(record["session_id"], call["tool_use_id"], call["path"], "rejected")
                facts = {
                    "outcome": "rejected",
                    "tool_name": call["tool"],
                    "tool_use_id": call["tool_use_id"],
                    "path_hash": self._hashed(os.path.relpath(call["path"], call["root"])),
                }
                named = {name: call.get(name) for name in ("turn", "tool_use_id", "agent_id")}
                self._append_event(record | named, "edit.feedback", identity, facts)
            path.unlink()

    def _append_event(self, record: Record, name: str, identity: str, facts: Mapping[str, Any]) -> None:
        origin = {"session_id": record["session_id"], "turn": _turn(record)}
        self._journal.append([event(name, identity, at=record["at"], attributes=facts, **origin)])


def _seen_elsewhere(record: Record, hunks: Sequence[EditHunk]) -> tuple[EarlierLines, ...]:
    """Return the edit's lines in other uncommitted files, which therefore did not move there later."""
    lines = split(record["after"] or "")
    wanted = [line for hunk in hunks for line in lines[hunk.b1 : hunk.b2]]
    paths = [path for path in dirty(record["root"]) if path != record["path"]] if wanted else []
    return earlier_lines(wanted, [(path, content(f"{record['root']}/{path}")[0]) for path in paths])


def _turn(record: Record) -> int | None:
    """Return the turn that the agent reported, else the one in the call's id if our gateway made it.

    The turns of a sub-agent belong to another session, so they have none here.
    """
    if record.get("turn") is not None or record.get("agent_id"):
        return record.get("turn")
    return turn_of_call(record.get("tool_use_id") or "")


def _is_format(record: Record) -> bool:
    """Return whether the edit changes formatting only."""
    return same_meaning(record["path"], split(record["before"]), split(record["after"]))


def _after_overwriting(other: FollowedEdit, edit: FollowedEdit) -> tuple[EditHunk, ...]:
    """Return the hunks of `other`, with those marked that `edit` changes in more than their formatting."""
    lines, before, after = other.lines(), edit.lines_before(), edit.lines()
    changes = blocks(lines, before)
    new = [h for h in edit.hunks if tokens(before[h.a1 : h.a2]) != tokens(after[h.b1 : h.b2])]
    hunks = []
    for hunk in other.hunks:
        region = follow(changes, lines, before, hunk.b1, hunk.b2)
        hit = any(_overlap(region.start, region.end, own) for own in new)
        hunks.append(dataclasses.replace(hunk, superseded=hunk.superseded or hit))
    return tuple(hunks)


def _overlap(start: int, end: int, new: EditHunk) -> bool:
    if start == end or new.a1 == new.a2:
        return new.a1 <= end and start <= new.a2 and (start == end or start < new.a1 < end)
    return new.a1 < end and start < new.a2


def _base(record: Record) -> str | None:
    """Return the commit of HEAD at that time: the last line of the reflog, at its length then."""
    repo = find_repository(record["root"])
    log = Path(reflog_of(repo)) if repo else None
    if log is None or not record["reflog"] or not log.exists():
        return head_commit(record["root"])
    with log.open("rb") as file:
        lines = file.read(record["reflog"]).splitlines()
    return lines[-1].split(b" ")[1].decode() if lines else head_commit(record["root"])


def _changed(git: snapshots.IndexGit, record: Record) -> list[str]:
    order = ("diff-tree", "-r", "--no-renames", "--name-only", "-z", record["before"], record["after"])
    fields = git(*order).split(b"\0")
    return [field.decode(errors="surrogateescape") for field in fields if field]


def _blob(git: snapshots.IndexGit, record: Record, side: str, path: str) -> tuple[str | None, str]:
    try:
        return text_of(git("cat-file", "blob", f"{record[side]}:{path}"))
    except subprocess.CalledProcessError:
        return None, "missing"
