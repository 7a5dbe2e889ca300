"""The follow-ups of recorded sessions, and the signals that a judge makes of them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ostinato.model.tokenizer import Tokenizer
from ostinato.model.transcript import messages_of
from ostinato.rewards.follow_ups.judge import FollowUpJudge
from ostinato.store import Store
from ostinato.types import Session, Signal, SignalKind, Turn, TurnKind

REMINDER = re.compile(
    r"<(system-reminder|environment_details|environment_context|command-[a-z]+)>.*?</\1>", re.DOTALL
)
"""Text that clients put into the user's message, and that no person said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUp:
    """The words that a developer said after the agent had worked.

    >>> FollowUp(session_id="s1", turn=2, said_at=0.0, text="still red").turn
    2
    """

    session_id: str
    turn: int
    """The turn that the words are about: the last one before them."""
    said_at: float
    """The time of the next turn, in seconds since the epoch; the words came a moment before."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedFollowUps:
    """The figures of one reading.

    >>> JudgedFollowUps(read=3, unanswered=1).unanswered
    1
    """

    read: int
    unanswered: int
    """Follow-ups on which the judge gave no answer: they are asked about again at the next reading."""
    waiting: frozenset[str] = frozenset()
    """The sessions of those."""


async def judge_follow_ups(
    store: Store, tokenizer: Tokenizer, judge: FollowUpJudge, sessions: Iterable[Session]
) -> JudgedFollowUps:
    """Record a signal for each follow-up that has none by this judge yet."""
    ids = [session.id for session in sessions]
    turns, signals = store.turns_of(ids), store.signals_of(ids)
    read, unanswered, waiting = 0, 0, set[str]()
    for id_ in ids:
        known = {signal.id for signal in signals.get(id_, ())}
        found = []
        for said in follow_ups(turns.get(id_, ()), tokenizer):
            name = f"follow-up/{said.session_id}/{said.turn}/{judge.name}"
            if name in known:
                continue
            probability = await judge.probability(said.text)
            if probability is None:
                unanswered += 1
                waiting.add(id_)
            else:
                found.append(_signal(name, said, probability))
        store.record((), found)
        read += len(found)
    return JudgedFollowUps(read=read, unanswered=unanswered, waiting=frozenset(waiting))


def follow_ups(turns: Sequence[Turn], tokenizer: Tokenizer) -> list[FollowUp]:
    """Return what the developer said between the turns of one session.

    Prompts are read in the form of ChatML, which the gateway's own renderer writes; a prompt in another form
    has no messages, and so no follow-ups.
    """
    found: list[FollowUp] = []
    before: Turn | None = None
    for turn in turns:
        if turn.kind is not TurnKind.MAIN:
            continue
        text, spoke_before = _said(_messages(turn, tokenizer))
        if before is not None and spoke_before and text:
            found.append(
                FollowUp(session_id=turn.session_id, turn=before.index, said_at=turn.started_at, text=text)
            )
        before = turn
    return found


def words_of(turns: Sequence[Turn], tokenizer: Tokenizer) -> list[str]:
    """Return what the developer said in one session, one text for each prompt, the first words first."""
    said = [_said(_messages(turn, tokenizer))[0] for turn in turns if turn.kind is TurnKind.MAIN]
    return [text for text in said if text]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRequest:
    """The first words of a developer, and the whole prompt that they stand in.

    >>> FirstRequest(text="fix it", prompt="cart.py is open. fix it").text
    'fix it'
    """

    text: str
    prompt: str
    """Every message of the prompt, those of the system and of the client too."""


def first_request(turns: Sequence[Turn], tokenizer: Tokenizer) -> FirstRequest | None:
    """Return the request that a session began with; None when its first prompt is in another form."""
    first = next((turn for turn in turns if turn.kind is TurnKind.MAIN), None)
    messages = [] if first is None else _messages(first, tokenizer)
    text, _ = _said(messages)
    if not text:
        return None
    prompt = "\n".join(str(message.get("content") or "") for message in messages)
    return FirstRequest(text=text, prompt=prompt)


def _messages(turn: Turn, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    return messages_of(tokenizer.decode(turn.prompt_ids))


def _said(messages: Sequence[Mapping[str, Any]]) -> tuple[str, bool]:
    """Return what the developer said last, if a prompt ends in it, and whether the agent spoke before.

    Claude Code adds messages of the system below those of the developer.
    """
    spoken = [message for message in messages if message.get("role") != "system"]
    if not spoken or spoken[-1].get("role") != "user":
        return "", False
    spoke_before = any(message.get("role") == "assistant" for message in spoken)
    return REMINDER.sub("", str(spoken[-1].get("content") or "")).strip(), spoke_before


def _signal(name: str, said: FollowUp, probability: float) -> Signal:
    return Signal(
        id=name,
        session_id=said.session_id,
        kind=SignalKind.FOLLOW_UP,
        value=probability,
        observed_at=said.said_at,
        turn=said.turn,
    )
