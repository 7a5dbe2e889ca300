"""Turns as increments: a row holds only what its prompt adds to an earlier turn of its session.

    turn 0   prompt_ids = the whole prompt            context = prompt + completion, its length and digest
    turn 1   base = 0, prompt_ids = what came after   context = context of turn 0 + prompt_ids + completion

So the size of a session grows with what was said in it, not with the square. Neither the gateway nor any
other writer says what a prompt begins with: the store finds it, by the digests of earlier contexts. Every
prompt that continues one or forks from one is an increment, and a prompt that does not, such as one in which
a secret was hidden, is stored whole. Rows of older stores have no `base` and are whole.

A prompt that is read is compared with its digest. A missing or damaged row therefore is noticed, and costs
those turns whose prompts were built on it and nothing else.
"""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ostinato.store.sql.backend import Recording
from ostinato.store.sql.errors import StoreError
from ostinato.store.sql.row_conversion import Row, turn_of, turn_row
from ostinato.types import Turn

log = logging.getLogger(__name__)
MOST_TRIED = 64
"""Earlier turns of a session, the newest first, that a prompt may begin with."""
DIGEST_BYTES = 16
BYTES_OF_AN_ID = 4
LOST = "its prompt is lost"


@dataclass(frozen=True, slots=True)
class TurnContext:
    """The tokens that a turn read and sampled, by their number and digest; `number` is that of the turn."""

    number: int
    length: int
    digest: bytes


def rows_of(to: Recording, turns: Sequence[Turn]) -> list[Row]:
    """Return the rows of turns that are about to be recorded, each as an increment where it can be one."""
    recorded: dict[str, list[TurnContext]] = {}
    rows = []
    later = [(turn.session_id, turn.index) for turn in turns if turn.index]
    before = iter(to.contexts_before(later, MOST_TRIED))
    for turn in turns:
        known = [one for one in recorded.get(turn.session_id, ()) if one.number < turn.index]
        if turn.index:
            known += [TurnContext(*row) for row in next(before)]
        row = turn_row(turn)
        prompt = row["prompt_ids"]
        base, digest = _matched(prompt, known)
        row |= {
            "base": None if base is None else base.number,
            "prompt_ids": prompt if base is None else prompt[base.length * BYTES_OF_AN_ID :],
            "length": len(turn.prompt_ids) + len(turn.completion.ids),
        }
        digest.update(row["ids"])
        rows.append(row | {"digest": digest.digest()})
        recorded.setdefault(turn.session_id, []).append(
            TurnContext(turn.index, row["length"], rows[-1]["digest"])
        )
    return rows


def _matched(prompt: bytes, known: Iterable[TurnContext]) -> tuple[TurnContext | None, "hashlib.blake2b"]:
    """Return the longest context that the prompt begins with, and the digest of the prompt so far.

    All contexts are tried in one pass over the prompt.
    """
    found, at = None, 0
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for context in sorted(known, key=lambda context: context.length):
        end = context.length * BYTES_OF_AN_ID
        if end > len(prompt):
            break
        digest.update(prompt[at:end])
        at = end
        if context.length and digest.digest() == context.digest:
            found = context
    digest.update(prompt[at:])
    return found, digest


@dataclass(frozen=True, slots=True)
class ReadTurn:
    """A turn as it was read; `damage` says why its prompt could not be put together, and is None if it was.

    The turn of a damaged row has no prompt and is untrainable for that reason.
    """

    turn: Turn
    damage: str | None


def turns_from(rows: Iterable[Mapping[str, Any]]) -> Iterator[ReadTurn]:
    """Yield the turns of one session, whose rows come in order."""
    rows = list(rows)
    bases = {row["base"] for row in rows}
    contexts: dict[int, bytes] = {}
    for row in rows:
        prompt, damage = _prompt_of(row, contexts)
        if damage is None and row["number"] in bases:
            contexts[row["number"]] = prompt + row["ids"]
        yield ReadTurn(_turn_of(row, prompt, damage), damage)


def _prompt_of(row: Mapping[str, Any], contexts: Mapping[int, bytes]) -> tuple[bytes, str | None]:
    base = row["base"]
    if base is not None and base not in contexts:
        return b"", f"{LOST}: turn {base} of its session, which it continues, is missing or damaged"
    prompt = row["prompt_ids"] if base is None else contexts[base] + row["prompt_ids"]
    if row["digest"] is None:
        return prompt, None
    digest = hashlib.blake2b(prompt, digest_size=DIGEST_BYTES)
    digest.update(row["ids"])
    if digest.digest() != row["digest"]:
        return b"", f"{LOST}: its row is damaged, its tokens are not those that were recorded"
    return prompt, None


def _turn_of(row: Mapping[str, Any], prompt: bytes, damage: str | None) -> Turn:
    whole = dict(row) | {"prompt_ids": prompt}
    return turn_of(whole if damage is None else whole | {"untrainable": damage})


def intact(found: Sequence[ReadTurn], session_id: str, where: str) -> list[Turn]:
    """Return the turns of a session. Raise StoreError, which names it, when one is damaged."""
    if damaged := next((read for read in found if read.damage is not None), None):
        raise StoreError(
            f"{where}: session {session_id!r}, turn {damaged.turn.index}: {damaged.damage}: "
            "restore the file from a copy, or start another session"
        )
    return [read.turn for read in found]


def with_damaged(found: Sequence[ReadTurn], session_id: str) -> list[Turn]:
    """Return all turns of a session; damaged ones, which are untrainable, are written to the log."""
    for read in found:
        if read.damage is not None:
            log.error("session %r, turn %d: %s", session_id, read.turn.index, read.damage)
    return [read.turn for read in found]
