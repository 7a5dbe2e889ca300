"""The journal's entries about an edit: events with their attributes, and the signals that become rewards.

They hold keyed hashes and rates of files; text only where the settings allow it.
"""

import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ostinato.edits.follow.edit import EditVerdict, FollowedEdit
from ostinato.edits.follow.measure import MeasuredEdit
from ostinato.edits.report.journal import JournalEntry
from ostinato.types import Signal, SignalKind, to_json

SALT = "salt"
LANGUAGES = {
    "py": "python",
    "js": "javascript",
    "ts": "typescript",
    "rs": "rust",
    "rb": "ruby",
    "md": "markdown",
    "sh": "shellscript",
}


class Hasher:
    """Hashes keyed with a secret of this clone: equal texts have equal hashes, which outsiders cannot
    guess."""

    def __init__(self, state: Path) -> None:
        path = state / SALT
        if not path.exists():
            path.write_bytes(secrets.token_bytes(32))
            path.chmod(0o600)
        self._key = path.read_bytes()

    def __call__(self, text: str | None) -> str | None:
        if text is None:
            return None
        data = text.encode(errors="surrogateescape")
        return hashlib.blake2b(data, key=self._key, digest_size=16).hexdigest()


def event(
    name: str, identity: str, *, at: float, session_id: str, turn: int | None, attributes: Mapping[str, Any]
) -> JournalEntry:
    """Return a line of POST /v1/events. `at` is in seconds since the epoch; a repeated id changes nothing."""
    return {
        "id": identity,
        "name": name,
        "time": at,
        "session_id": session_id,
        "turn": turn,
        "attributes": dict(attributes),
    }


def of_proposal(edit: FollowedEdit, hashed: Hasher, *, with_text: bool) -> JournalEntry:
    """Return `edit.proposed`."""
    facts: dict[str, Any] = {
        "edit_id": edit.id,
        "path_hash": hashed(edit.path),
        "language_id": _language(edit.path),
        "before_hash": hashed(edit.before),
        "after_hash": hashed(edit.after),
        "lines_added": sum(hunk.b2 - hunk.b1 for hunk in edit.hunks),
        "lines_removed": sum(hunk.a2 - hunk.a1 for hunk in edit.hunks),
        "edit_source": edit.agent,
        "tool_name": edit.tool,
        "tool_use_id": edit.tool_use_id,
        "model": edit.model,
    }
    if with_text:
        facts |= {"path": edit.path, "hunks": [_hunk_text(edit, i) for i in range(len(edit.hunks))]}
    return _of(edit, "edit.proposed", "", edit.proposed_at, facts)


def of_survival(edit: FollowedEdit, window: str, at: float, measured: MeasuredEdit) -> JournalEntry:
    """Return `edit.survival` of a measured window."""
    return _of(
        edit,
        "edit.survival",
        f"/survival/{window}",
        at,
        _delay(edit, window, at)
        | {
            "survival_rate_four_gram": round(measured.rates.four_gram, 6),
            "survival_rate_no_revert": round(measured.rates.no_revert, 6),
            "did_branch_change": 0,
            "lines_left": sum(last - first + 1 for first, last in measured.lines),
            "verdict": measured.verdict.value,
        },
    )


def of_censoring(edit: FollowedEdit, window: str, at: float, why: str) -> JournalEntry:
    """Return `edit.survival` of a window without a measurement, with the reason instead of a number."""
    facts = _delay(edit, window, at) | {"censored": why, "did_branch_change": int(why == "branch_changed")}
    return _of(edit, "edit.survival", f"/survival/{window}", at, facts)


def of_commit(edit: FollowedEdit, commit: str, at: float, measured: MeasuredEdit) -> JournalEntry:
    """Return `edit.commit`, which is repeated when a rebase or an amend gives the commit another id."""
    facts = {
        "edit_id": edit.id,
        "commit": commit,
        "rewritten_from": edit.commit,
        "survival_rate_four_gram": round(measured.rates.four_gram, 6),
        "survival_rate_no_revert": round(measured.rates.no_revert, 6),
    }
    return _of(edit, "edit.commit", f"/commit/{commit}", at, facts)


def of_verdict(edit: FollowedEdit, window: str, at: float, verdict: EditVerdict) -> list[JournalEntry]:
    """Return the signal of a new verdict, with `edit.revert` before it when it is one."""
    signal = to_json(
        Signal(
            session_id=edit.session_id,
            kind=SignalKind(f"edit_{verdict.value}"),
            value=1.0,
            observed_at=at,
            turn=edit.turn,
            edit=edit.id,
            id=f"{edit.id}/{verdict.value}/{window}",
        )
    )
    if verdict is not EditVerdict.REVERTED:
        return [signal]
    return [_of(edit, "edit.revert", f"/revert/{window}", at, _delay(edit, window, at)), signal]


def of_superseding(edit: FollowedEdit, by: str, at: float, hunks: int) -> JournalEntry:
    """Return `edit.superseded`: an agent wrote over hunks of the edit."""
    facts = {"edit_id": edit.id, "by": by, "hunks_left": hunks}
    return _of(edit, "edit.superseded", f"/superseded/{by}", at, facts)


def _of(edit: FollowedEdit, name: str, suffix: str, at: float, facts: Mapping[str, Any]) -> JournalEntry:
    return event(name, edit.id + suffix, at=at, session_id=edit.session_id, turn=edit.turn, attributes=facts)


def _delay(edit: FollowedEdit, window: str, at: float) -> dict[str, Any]:
    return {
        "edit_id": edit.id,
        "window": window,
        "time_delay_ms": max(0, round((at - edit.proposed_at) * 1000)),
    }


def _language(path: str) -> str:
    suffix = Path(path).suffix.removeprefix(".").lower()
    return LANGUAGES.get(suffix, suffix or "plaintext")


def _hunk_text(edit: FollowedEdit, index: int) -> dict[str, Any]:
    hunk = edit.hunks[index]
    return {
        "line": hunk.b1 + 1,
        "before": "".join(edit.lines_before()[hunk.a1 : hunk.a2]),
        "after": "".join(edit.lines()[hunk.b1 : hunk.b2]),
    }
