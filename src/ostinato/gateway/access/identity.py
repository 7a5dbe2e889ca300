"""The session that a request claims to belong to. A client's claim correlates requests; it authorises
nothing.

The first of these that is present decides:

    X-Session-Id                  ours
    X-Claude-Code-Session-Id      with X-Claude-Code-Agent-Id, each sub-agent has a session of its own
    session-id, session_id        Codex
    prompt_cache_key              a field of the body: Codex, the OpenAI clients
    x-opencode-session
    x-litellm-session-id
    metadata.user_id              a field of the body: ends in Claude Code's session
    conversation_id
    nothing                       the conversation itself: see `ConversationCache.find`
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ostinato.gateway.access.turn_kind import kind_of
from ostinato.gateway.dialects.request import ChatRequest
from ostinato.gateway.errors import ApiError, invalid
from ostinato.types import ApiKey, Role, Source, TurnKind

SESSION_ID = re.compile(r"[\w.:/#@+=-]{1,200}", re.ASCII)
UNIQUE = re.compile(r"[0-9a-fA-F-]{32,36}|ses_\w{16,}", re.ASCII)
"""Ids that are made to be unique, which a client's hooks and telemetry repeat."""
HEADER = re.compile(r"[\x20-\x7e]{1,200}")
SUBAGENT = "x-claude-code-agent-id"
_SENT = {source.value: source for source in Source if source is not Source.IMPORTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The claims that a request makes in its headers and its body.

    >>> Identity(session_id="s1", source=Source.LIVE, task_id=None, harness="", turn=None).source.value
    'live'
    """

    session_id: str | None
    """None when the client names none: then the conversation itself decides."""
    source: Source
    task_id: str | None
    harness: str
    turn: int | None
    """The index that the client expects this turn to have; None when it names none."""
    kind: TurnKind = TurnKind.MAIN


def identify(headers: Mapping[str, str], key: ApiKey, chat: ChatRequest) -> Identity:
    """Read the session headers.

    Raise ApiError 400 for a malformed one, 403 for a source that the key may not claim.
    """
    return Identity(
        session_id=_session_id(headers, key, chat),
        source=_source(headers.get("x-session-source", Source.LIVE.value), key),
        task_id=_header(headers, "x-task-id"),
        harness=_header(headers, "x-harness-hash") or "",
        turn=_turn(headers.get("x-turn")),
        kind=kind_of(headers, chat),
    )


def _session_id(headers: Mapping[str, str], key: ApiKey, chat: ChatRequest) -> str | None:
    ours = headers.get("x-session-id")
    if ours:
        if not SESSION_ID.fullmatch(ours):
            raise invalid("X-Session-Id must be 1 to 200 letters, digits or ._:/#@+=-", "X-Session-Id")
        return ours
    claimed = next((value for value in _claimed(headers, chat) if value), None)
    return None if claimed is None else scoped(claimed, key)


def _claimed(headers: Mapping[str, str], chat: ChatRequest) -> Iterator[str | None]:
    """Yield the session ids of clients that do not know this gateway, in the order in which they count."""
    claude, agent = headers.get("x-claude-code-session-id"), headers.get(SUBAGENT)
    yield f"{claude}/{agent}" if claude and agent else claude
    yield headers.get("session-id")
    yield headers.get("session_id")
    yield chat.hints.get("prompt_cache_key")
    yield headers.get("x-opencode-session")
    yield headers.get("x-litellm-session-id")
    yield chat.hints.get("metadata.user_id")
    yield headers.get("conversation_id")


def scoped(value: str, key: ApiKey) -> str:
    """Return a session id that is the user's own, since two users may both name a session `my-app`."""
    whole, _, _ = value.partition("/")
    return value if UNIQUE.fullmatch(whole) and SESSION_ID.fullmatch(value) else owned(value, key)


def owned(value: str, key: ApiKey) -> str:
    """Return the id under which the key's user has a thing of this name when somebody else has the name."""
    digest = hashlib.blake2b(
        f"{key.organisation}\0{key.user}\0{value}".encode(errors="replace"), digest_size=8
    ).hexdigest()
    readable = re.sub(r"[^\w.-]", "-", value[:64], flags=re.ASCII)
    return f"{readable}.{digest}"


def _source(text: str, key: ApiKey) -> Source:
    try:
        source = _SENT[text]
    except KeyError:
        allowed = ", ".join(_SENT)
        raise invalid(f"X-Session-Source must be one of {allowed}", "X-Session-Source") from None
    if source is not Source.LIVE and not key.may(Role.ADMIN):
        raise ApiError(403, f"{source.value} sessions need a key with the role admin", code="role_required")
    return source


def _header(headers: Mapping[str, str], name: str) -> str | None:
    value = headers.get(name)
    if value is not None and not HEADER.fullmatch(value):
        raise invalid(f"{name} must be 1 to 200 printable characters", name)
    return value


def _turn(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise invalid("X-Turn must be a small whole number", "X-Turn")
    return int(text)
