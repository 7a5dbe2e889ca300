"""The kind of a turn: named by a header, or known by the words that clients use for calls beside the work.

The table is data. A row matches when its words occur in the message it names: the system prompt or the last
user message. A client whose words changed is recorded as `main` until a row is added; `X-Turn-Type` always
decides. The words were found in Claude Code 2.1.197, Codex 0.169.0, opencode 1.18.33 and aider 0.86.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ostinato.gateway.dialects.request import ChatRequest, Message
from ostinato.gateway.errors import invalid
from ostinato.types import TurnKind

MOST_READ = 4_000
"""Characters of each text that are searched."""
PROBE_TOKENS = 1
"""A request for so few tokens only checks that the model is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPhrase:
    """Words by which a client's call is known.

    >>> ClientPhrase(client="aider", kind=TurnKind.SIDE, role="system", words="commit messages").kind.value
    'side'
    """

    client: str
    kind: TurnKind
    role: str
    words: str


PHRASES = (
    ClientPhrase(client="claude", kind=TurnKind.SIDE, role="system", words="sentence-case title"),
    ClientPhrase(
        client="claude", kind=TurnKind.SUMMARY, role="system", words="tasked with summarizing conversat"
    ),
    ClientPhrase(
        client="claude", kind=TurnKind.SUMMARY, role="user", words="detailed summary of the conversation"
    ),
    ClientPhrase(client="codex", kind=TurnKind.SUMMARY, role="user", words="CONTEXT CHECKPOINT COMPACTION"),
    ClientPhrase(client="opencode", kind=TurnKind.SIDE, role="system", words="You are a title generator"),
    ClientPhrase(
        client="opencode", kind=TurnKind.SIDE, role="user", words="Generate a title for this conversation"
    ),
    ClientPhrase(
        client="opencode", kind=TurnKind.SUMMARY, role="system", words="context summarization agent"
    ),
    ClientPhrase(
        client="opencode", kind=TurnKind.SIDE, role="system", words="Summarize what was done in this conv"
    ),
    ClientPhrase(client="aider", kind=TurnKind.SIDE, role="system", words="one-line Git commit messages"),
    ClientPhrase(
        client="aider", kind=TurnKind.SUMMARY, role="system", words="summarize this partial conversation"
    ),
)
HEADERS: Mapping[str, Mapping[str, TurnKind]] = {
    "x-openai-subagent": {"compact": TurnKind.SUMMARY, "memory_consolidation": TurnKind.SIDE},
}
"""Headers in which clients name the kind themselves."""


def kind_of(headers: Mapping[str, str], chat: ChatRequest) -> TurnKind:
    """Return the kind of the turn. Raise ApiError 400 when the header names an unknown one."""
    named = headers.get("x-turn-type")
    if named is not None:
        return _named(named)
    for name, values in HEADERS.items():
        if headers.get(name, "") in values:
            return values[headers[name]]
    if chat.max_tokens <= PROBE_TOKENS:
        return TurnKind.SIDE
    texts = {"system": _text(chat.messages[0], "system"), "user": _text(chat.messages[-1], "user")}
    return next((phrase.kind for phrase in PHRASES if phrase.words in texts[phrase.role]), TurnKind.MAIN)


def _named(value: str) -> TurnKind:
    try:
        return TurnKind(value)
    except ValueError:
        message = f"X-Turn-Type must be one of {', '.join(TurnKind)}"
        raise invalid(message, "X-Turn-Type") from None


def _text(message: Message, role: str) -> str:
    content = message.get("content")
    if message["role"] != role or content is None:
        return ""
    if isinstance(content, str):
        return content[:MOST_READ]
    return "".join(part["text"][:MOST_READ] for part in content)
