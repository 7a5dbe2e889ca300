"""What a dialect is: it reads requests into the gateway's one form and writes answers from the same turn."""

from dataclasses import dataclass
from typing import Any, Protocol

from ostinato.gateway.dialects.request import ChatRequest
from ostinato.gateway.errors import ApiError
from ostinato.types import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A turn that is in the store, and how it reads."""

    turn: Turn
    message: dict[str, Any]
    """In OpenAI's form: content and tool_calls."""
    finish: str
    """`stop`, `length`, `tool_calls` or `stop_sequence`."""
    stop: str | None = None
    """The stop text that ended it."""

    @property
    def calls(self) -> list[dict[str, Any]]:
        return self.message.get("tool_calls") or []


class ReplyEvents(Protocol):
    """Server-sent events of one answer. Text as it is sampled; calls once they are recorded."""

    ping: bytes
    """What keeps a silent stream alive."""

    def first(self) -> bytes: ...

    def text(self, piece: str) -> bytes: ...

    def last(self, answer: Answer, said: str) -> bytes:
        """What is left to say after `said`: the rest of the text, the calls, why it ended, the usage."""
        ...

    def failed(self, error: ApiError) -> bytes:
        """Ends a stream that cannot be completed."""
        ...


class Dialect(Protocol):
    """One wire language."""

    name: str

    def parse(self, body: object) -> ChatRequest:
        """ApiError 400 that names the field it cannot read or honour."""
        ...

    def whole(self, chat: ChatRequest, answer: Answer) -> bytes: ...

    def events(
        self, chat: ChatRequest, turn_id: str, started_at: float, prompt_tokens: int
    ) -> ReplyEvents: ...

    def error(self, error: ApiError) -> bytes: ...


def rest_of(answer: Answer, said: str) -> str:
    """The content that is still to be said. AssertionError when something else was said: a bug of ours."""
    content = answer.message["content"] or ""
    if not content.startswith(said):
        raise AssertionError(f"streamed {said!r} is not the start of {content!r}")
    return str(content[len(said) :])


def headers_of(turn: Turn) -> dict[str, str]:
    """What every answer says of its turn."""
    return {
        "x-ostinato-session": turn.session_id,
        "x-ostinato-turn": str(turn.index),
        "x-ostinato-arm": turn.arm,
        "x-ostinato-version": str(max(turn.completion.versions, default=0)),
    }


def extra_of(turn: Turn) -> dict[str, Any]:
    """The `ostinato` field of a body."""
    return {
        "session": turn.session_id,
        "turn": turn.index,
        "segment": turn.segment,
        "arm": turn.arm,
        "version": max(turn.completion.versions, default=None),
        "broken": turn.broken,
        "kind": turn.kind.value,
        "untrainable": turn.untrainable,
    }


def wire_id(prefix: str, turn_id: str) -> str:
    """A turn's id as clients expect ids: letters, digits, `_` and `-`."""
    return prefix + "".join(c if c.isalnum() or c in "_-" else "-" for c in turn_id)


def pieces(text: str, size: int = 1024) -> list[str]:
    """`text` in parts for argument deltas; at least one."""
    return [text[i : i + size] for i in range(0, len(text), size)] or [""]
