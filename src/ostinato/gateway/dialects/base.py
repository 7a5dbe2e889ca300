"""The protocols of a dialect: it parses requests into the gateway's one form and writes answers from a
turn."""

from dataclasses import dataclass
from typing import Any, Protocol

from ostinato.gateway.dialects.request import ChatRequest
from ostinato.gateway.errors import ApiError
from ostinato.types import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A recorded turn, and the message that was parsed from its completion."""

    turn: Turn
    message: dict[str, Any]
    """The message in OpenAI's form: content and tool_calls."""
    finish: str
    """`stop`, `length`, `tool_calls` or `stop_sequence`."""
    stop: str | None = None
    """The stop text that ended the completion."""

    @property
    def reasoning(self) -> str:
        """The text that the model wrote before its answer; empty when there is none."""
        return str(self.message.get("reasoning_content") or "")

    @property
    def calls(self) -> list[dict[str, Any]]:
        return self.message.get("tool_calls") or []


class ReplyEvents(Protocol):
    """The server-sent events of one answer: text as it is sampled, calls once they are recorded."""

    ping: bytes
    """The event that keeps a silent stream alive."""

    def first(self) -> bytes: ...

    def text(self, piece: str) -> bytes: ...

    def last(self, answer: Answer, sent: str) -> bytes:
        """Return the end of the stream: the text that follows `sent`, the calls, the finish reason, the
        usage."""
        ...

    def failed(self, error: ApiError) -> bytes:
        """Return the event that ends a stream that cannot be completed."""
        ...


class Dialect(Protocol):
    """One wire language for requests and replies."""

    name: str

    def parse(self, body: object) -> ChatRequest:
        """Return the checked request. Raise ApiError 400 that names a field it cannot read or honour."""
        ...

    def whole(self, chat: ChatRequest, answer: Answer) -> bytes: ...

    def events(
        self, chat: ChatRequest, turn_id: str, started_at: float, prompt_tokens: int
    ) -> ReplyEvents: ...

    def error(self, error: ApiError) -> bytes: ...


def rest_of(answer: Answer, sent: str) -> str:
    """Return the content that follows `sent`.

    Raise AssertionError when the content does not start with `sent`: that is a bug in the gateway.
    """
    content = answer.message["content"] or ""
    if not content.startswith(sent):
        raise AssertionError(f"streamed {sent!r} is not the start of {content!r}")
    return str(content[len(sent) :])


def headers_of(turn: Turn) -> dict[str, str]:
    """Return the headers that identify a turn."""
    return {
        "x-ostinato-session": turn.session_id,
        "x-ostinato-turn": str(turn.index),
        "x-ostinato-arm": turn.arm,
        "x-ostinato-version": str(max(turn.completion.versions, default=0)),
    }


def extra_of(turn: Turn) -> dict[str, Any]:
    """Return the `ostinato` field of a reply's body."""
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
    """Return `prefix` and a turn's id in the characters that clients expect: letters, digits, `_` and `-`."""
    return prefix + "".join(c if c.isalnum() or c in "_-" else "-" for c in turn_id)


def pieces(text: str, size: int = 1024) -> list[str]:
    """Split `text` into parts of `size` characters for argument deltas. An empty text is one empty part."""
    return [text[i : i + size] for i in range(0, len(text), size)] or [""]
