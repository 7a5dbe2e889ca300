"""The sessions of outside clients, such as Claude Code, as their hooks and the gateway recorded them.

::

    `ostinato hook` ─► the tree at the start, the edited files ─┐
    gateway's record ─► the user's words, under their consent ──┴─► RecordedSession, or a reason

Hooks never keep what a person says, so the words are those that the gateway recorded, read with the tokenizer
of the record.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from ostinato.edits.capture import starts
from ostinato.edits.capture.repository_paths import find_repository, state_of
from ostinato.loop.mining.sessions import RecordedSession, SessionReading
from ostinato.model.tokenizer import Tokenizer
from ostinato.rewards.follow_ups.read import words_of
from ostinato.store import Store
from ostinato.store.redaction.find import redact
from ostinato.tasks.mining.base import MiningError


def outside_sessions(root: Path, store: Store, tokenizer: Tokenizer | None) -> Mapping[str, SessionReading]:
    """Return by id the readings of the sessions whose start the hooks kept in the work tree `root`."""
    repo = find_repository(str(root))
    found: dict[str, SessionReading] = {}
    for folder in starts.folders(state_of(repo)) if repo is not None else ():
        start = starts.read(folder)
        if repo is not None and start is not None and start["root"] == repo.root:
            id = str(start["session_id"])
            found[id] = partial(_recorded, id, Path(folder), start, store, tokenizer)
    return found


def _recorded(
    id: str,
    folder: Path,
    start: Mapping[str, object],
    store: Store,
    tokenizer: Tokenizer | None,
    *,
    with_words: bool,
) -> RecordedSession:
    edited = starts.edited(str(folder))
    if not edited:
        raise MiningError("no edit", id, "the hooks reported none")
    if not start["tree"]:
        raise MiningError("no tree at its start", id, str(start["why"]))
    return RecordedSession(
        id=id,
        words=_words(id, store, tokenizer) if with_words else (),
        tree=str(start["tree"]),
        place=folder,
        began_at=float(str(start["at"])),
        edited=edited,
    )


def _words(id: str, store: Store, tokenizer: Tokenizer | None) -> tuple[str, ...]:
    if tokenizer is None:
        raise MiningError("no words of the user", id, "name the record's tokenizer with --checkpoint")
    words = words_of(store.turns_of([id]).get(id, ()), tokenizer)
    if not words:
        raise MiningError("no words of the user", id, "its recorded prompts have none")
    return tuple(map(redact, words))
