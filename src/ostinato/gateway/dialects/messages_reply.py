"""Answers in the shape of Anthropic's Messages, whole and streamed, and its errors."""

import json
from collections.abc import Mapping
from typing import Any

from ostinato.gateway.dialects.base import Answer, extra_of, pieces, rest_of, wire_id
from ostinato.gateway.dialects.messages import parse_messages
from ostinato.gateway.dialects.request import ChatRequest
from ostinato.gateway.errors import ApiError

REASONS: Mapping[str, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "stop_sequence": "stop_sequence",
}
KINDS: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class Messages:
    """`/v1/messages`."""

    name = "messages"

    def parse(self, body: object) -> ChatRequest:
        return parse_messages(body)

    def whole(self, chat: ChatRequest, answer: Answer) -> bytes:
        turn, content = answer.turn, []
        if answer.message["content"] or not answer.calls:
            content.append({"type": "text", "text": answer.message["content"] or ""})
        content += [_tool_use(call, json.loads(call["function"]["arguments"])) for call in answer.calls]
        value = _envelope(chat, turn.id, len(turn.prompt_ids), len(turn.completion.ids)) | {
            "content": content,
            "stop_reason": REASONS[answer.finish],
            "stop_sequence": answer.stop,
            "ostinato": extra_of(turn),
        }
        return json.dumps(value).encode()

    def events(self, chat: ChatRequest, turn_id: str, started_at: float, prompt_tokens: int) -> "Blocks":
        return Blocks(_envelope(chat, turn_id, prompt_tokens, 0))

    def error(self, error: ApiError) -> bytes:
        return json.dumps(error_of(error)).encode()


def error_of(error: ApiError) -> dict[str, Any]:
    """Clients compact their conversation when they read that the prompt is too long."""
    kind = KINDS.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    too_long = error.code == "context_length_exceeded"
    message = f"prompt is too long: {error.message}" if too_long else error.message
    return {"type": "error", "error": {"type": kind, "message": message, "code": error.code}}


class Blocks:
    """Server-sent events of one answer: a text block while it is sampled, then one block a call."""

    ping = b'event: ping\ndata: {"type": "ping"}\n\n'

    def __init__(self, envelope: dict[str, Any]) -> None:
        self._envelope = envelope
        self._open = False
        self._index = 0

    def first(self) -> bytes:
        message = self._envelope | {"content": [], "stop_reason": None, "stop_sequence": None}
        return _event("message_start", message=message)

    def text(self, piece: str) -> bytes:
        delta = _event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
        if self._open:
            return delta
        self._open = True
        return self._start({"type": "text", "text": ""}) + delta

    def last(self, answer: Answer, said: str) -> bytes:
        rest, events = rest_of(answer, said), []
        if rest or not (said or answer.calls):
            events.append(self.text(rest))
        if self._open:
            events.append(self._stop())
        events += [self._call(call) for call in answer.calls]
        delta = {"stop_reason": REASONS[answer.finish], "stop_sequence": answer.stop}
        usage = _usage(len(answer.turn.prompt_ids), len(answer.turn.completion.ids))
        events.append(_event("message_delta", delta=delta, usage=usage, ostinato=extra_of(answer.turn)))
        events.append(_event("message_stop"))
        return b"".join(events)

    def failed(self, error: ApiError) -> bytes:
        return _event("error", **{k: v for k, v in error_of(error).items() if k != "type"})

    def _call(self, call: dict[str, Any]) -> bytes:
        deltas = [
            _event(
                "content_block_delta",
                index=self._index,
                delta={"type": "input_json_delta", "partial_json": piece},
            )
            for piece in pieces(call["function"]["arguments"])
        ]
        return self._start(_tool_use(call, {})) + b"".join(deltas) + self._stop()

    def _start(self, block: dict[str, Any]) -> bytes:
        return _event("content_block_start", index=self._index, content_block=block)

    def _stop(self) -> bytes:
        event = _event("content_block_stop", index=self._index)
        self._index += 1
        return event


def _tool_use(call: dict[str, Any], value: object) -> dict[str, Any]:
    return {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": value}


def _envelope(chat: ChatRequest, turn_id: str, prompt: int, completion: int) -> dict[str, Any]:
    return {
        "id": wire_id("msg_", turn_id),
        "type": "message",
        "role": "assistant",
        "model": chat.model,
        "usage": _usage(prompt, completion),
    }


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {
        "input_tokens": prompt,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": completion,
    }


def _event(kind: str, **fields: Any) -> bytes:
    # ASCII: some clients end a line at U+2028 and its like
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | fields)}\n\n".encode()
