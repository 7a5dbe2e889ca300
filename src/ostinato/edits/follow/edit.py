"""An edit that an agent proposed, and the file in which it is kept until its last window has passed."""

import dataclasses
import hashlib
import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ostinato.edits.capture.spool import write
from ostinato.edits.text.align import blocks, split

FOLDER = "edits"


class EditVerdict(StrEnum):
    """The fate of an edit at the developer's hands, so far."""

    KEPT = "kept"
    EDITED = "edited"
    REVERTED = "reverted"


@dataclass(frozen=True, slots=True, kw_only=True)
class EditHunk:
    """Lines [a1, a2) of the text before became lines [b1, b2) of the text proposed.

    >>> EditHunk(a1=1, a2=2, b1=1, b2=2).superseded
    False
    """

    a1: int
    a2: int
    b1: int
    b2: int
    superseded: bool = False
    """True once an agent itself wrote over it: later changes there are no verdict of the developer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierLines:
    """Lines of an edit that another file held when the edit was made, without their formatting.

    >>> EarlierLines(path="b.py", lines=("x=compute(1)",)).path
    'b.py'
    """

    path: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedEdit:
    """A proposed edit: its texts, its origin, and how far it has been followed.

    >>> FollowedEdit(id="e1", session_id="s1", turn=2, tool="Edit", tool_use_id="t1", root="/repo",
    ...      path="a.py", before=None, after="x", hunks=(), proposed_at=0.0, base=None, home="main").verdict
    """

    id: str
    session_id: str
    turn: int | None
    tool: str
    tool_use_id: str
    root: str
    """The path of the work tree."""
    path: str
    """The file, relative to `root`, in which the lines were last found."""
    before: str | None
    """The text of the file; None when it did not exist."""
    after: str | None
    hunks: tuple[EditHunk, ...]
    proposed_at: float
    base: str | None
    """The commit of HEAD at that time; None in a repository without commits."""
    home: str
    """The branch (or commit) on which the edit lives, as HEAD names it."""
    reflog: int = 0
    """Bytes of HEAD's reflog that were written before the edit."""
    anchor: str | None = None
    """The commit of HEAD at that byte of the reflog, by which a reflog that was rewritten is noticed."""
    stashes: tuple[str, ...] = ()
    """The commits of the stashes that were there before the edit."""
    made_in: str = ""
    """The path of the file when the edit was made; empty while that is `path`."""
    seen: tuple[EarlierLines, ...] = ()
    """The files that differed from `base` when it was made, with those of its lines that they held."""
    model: str = ""
    agent: str = ""
    done: tuple[str, ...] = ()
    """The windows that were measured or missed."""
    commit: str | None = None
    head: str | None = None
    """The commit of HEAD when the edit was last observed."""
    verdict: EditVerdict | None = None

    @property
    def first_path(self) -> str:
        """The path of the file when the edit was made."""
        return self.made_in or self.path

    def found_in(self, path: str) -> "FollowedEdit":
        """Return the same edit, with its lines last found in `path`."""
        return dataclasses.replace(
            self, path=path, made_in="" if path == self.first_path else self.first_path
        )

    def lines(self) -> list[str]:
        return split(self.after or "")

    def lines_before(self) -> list[str]:
        return split(self.before or "")


def proposed(before: str | None, after: str | None) -> tuple[EditHunk, ...]:
    """Return the hunks that turn one text into the other; here formatting counts too."""
    changes = blocks(split(before or ""), split(after or ""), by=lambda line: line)
    return tuple(EditHunk(a1=c.a1, a2=c.a2, b1=c.b1, b2=c.b2) for c in changes)


def edit_id(*parts: object) -> str:
    """Return an id that is the same whenever the same edit is reported."""
    return hashlib.sha256("\0".join(map(str, parts)).encode(errors="surrogateescape")).hexdigest()[:32]


def save(state: Path, edit: FollowedEdit) -> None:
    """Write the edit, texts included, to a file that only its owner may read."""
    values = dataclasses.asdict(edit) | {"before": _pack(edit.before), "after": _pack(edit.after)}
    write(str(_path(state, edit.id)), values)


def load(path: Path) -> FollowedEdit:
    """Read an edit. Raise ValueError (or KeyError, TypeError) for a file that holds none."""
    values: dict[str, Any] = json.loads(path.read_bytes())
    hunks = tuple(EditHunk(**hunk) for hunk in values.pop("hunks"))
    before, after = _unpack(values.pop("before")), _unpack(values.pop("after"))
    earlier = tuple(
        EarlierLines(path=each["path"], lines=tuple(each["lines"])) for each in values.pop("seen")
    )
    done, stashes = tuple(values.pop("done")), tuple(values.pop("stashes"))
    verdict = values.pop("verdict")
    return FollowedEdit(
        **values,
        before=before,
        after=after,
        hunks=hunks,
        seen=earlier,
        done=done,
        stashes=stashes,
        verdict=EditVerdict(verdict) if verdict else None,
    )


def opened(state: Path) -> list[FollowedEdit]:
    """Return the edits that are still followed, oldest first."""
    folder = state / FOLDER
    paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
    return sorted((load(path) for path in paths), key=lambda edit: edit.proposed_at)


def known(state: Path, identity: str) -> bool:
    return _path(state, identity).exists()


def close(state: Path, identity: str) -> None:
    """Stop following an edit and delete its texts."""
    _path(state, identity).unlink(missing_ok=True)


def live(edit: FollowedEdit) -> Sequence[EditHunk]:
    """Return the hunks that no agent wrote over since."""
    return [hunk for hunk in edit.hunks if not hunk.superseded]


def _path(state: Path, identity: str) -> Path:
    return state / FOLDER / f"{identity}.json"


def _pack(text: str | None) -> str | None:
    return None if text is None else b64encode(zlib.compress(text.encode())).decode()


def _unpack(packed: str | None) -> str | None:
    return None if packed is None else zlib.decompress(b64decode(packed)).decode()
