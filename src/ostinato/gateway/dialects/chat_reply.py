"""Answers in the shape of OpenAI's chat completions, whole and streamed."""

import json
from typing import Any

import orjson

from ostinato.gateway.dialects.base import Answer, extra_of, pieces, rest_of
from ostinato.gateway.dialects.chat import parse_chat
from ostinato.gateway.dialects.request import ChatRequest
from ostinato.gateway.errors import ApiError
from ostinato.types import Turn

DONE = b"data: [DONE]\n\n"


class Chat:
    """`/v1/chat/completions`."""

    name = "chat"

    def parse(self, body: object) -> ChatRequest:
        return parse_chat(body)

    def whole(self, chat: ChatRequest, answer: Answer) -> bytes:
        choice = {"index": 0, "message": answer.message, "finish_reason": _finish(answer), "logprobs": None}
        value = _envelope(answer.turn.id, "chat.completion", answer.turn.started_at, chat.model) | {
            "choices": [choice],
            "usage": _usage(answer.turn),
            "ostinato": extra_of(answer.turn),
        }
        return orjson.dumps(value)

    def events(self, chat: ChatRequest, turn_id: str, started_at: float, prompt_tokens: int) -> "Chunks":
        envelope = _envelope(turn_id, "chat.completion.chunk", started_at, chat.model)
        return Chunks(envelope, include_usage=chat.include_usage)

    def error(self, error: ApiError) -> bytes:
        return error.encoded()


class Chunks:
    """Server-sent events of one answer."""

    ping = b": waiting\n\n"

    def __init__(self, envelope: dict[str, Any], *, include_usage: bool) -> None:
        self._envelope = envelope
        self._include_usage = include_usage

    def first(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def text(self, piece: str) -> bytes:
        return self._chunk({"content": piece})

    def last(self, answer: Answer, said: str) -> bytes:
        rest = rest_of(answer, said)
        events = [self.text(rest)] if rest else []
        for i, call in enumerate(answer.calls):
            events += self._call(i, call)
        events.append(self._chunk({}, finish=_finish(answer), ostinato=extra_of(answer.turn)))
        if self._include_usage:
            events.append(_event(self._envelope | {"choices": [], "usage": _usage(answer.turn)}))
        return b"".join(events) + DONE

    def failed(self, error: ApiError) -> bytes:
        return b"data: " + error.encoded() + b"\n\n"

    def _call(self, index: int, call: dict[str, Any]) -> list[bytes]:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        first, *others = pieces(arguments)
        whole = {"index": index} | call | {"function": {"name": name, "arguments": first}}
        found = [self._chunk({"tool_calls": [whole]})]
        for piece in others:
            found.append(self._chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
        return found

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return _event(self._envelope | {"choices": [choice]} | more)


def _finish(answer: Answer) -> str:
    return "stop" if answer.finish == "stop_sequence" else answer.finish


def _envelope(turn_id: str, kind: str, created: float, model: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{turn_id}", "object": kind, "created": int(created), "model": model}


def _usage(turn: Turn) -> dict[str, int]:
    prompt, completion = len(turn.prompt_ids), len(turn.completion.ids)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _event(value: object) -> bytes:
    # ASCII: some clients end a line at U+2028 and its like
    return b"data: " + json.dumps(value).encode() + b"\n\n"
