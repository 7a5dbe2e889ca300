"""Answers in the shape of OpenAI's Responses, whole and streamed."""

import json
from collections.abc import Iterator
from typing import Any

from ostinato.gateway.dialects.base import Answer, extra_of, pieces, rest_of, wire_id
from ostinato.gateway.dialects.request import ChatRequest
from ostinato.gateway.dialects.responses import parse_responses
from ostinato.gateway.errors import ApiError
from ostinato.types import Turn

Item = dict[str, Any]


class Responses:
    """`/v1/responses`."""

    name = "responses"

    def parse(self, body: object) -> ChatRequest:
        return parse_responses(body)

    def whole(self, chat: ChatRequest, answer: Answer) -> bytes:
        turn = answer.turn
        return json.dumps(_finished(_envelope(chat, turn.id, turn.started_at), chat, answer)).encode()

    def events(self, chat: ChatRequest, turn_id: str, started_at: float, prompt_tokens: int) -> "ItemEvents":
        return ItemEvents(chat, turn_id, _envelope(chat, turn_id, started_at))

    def error(self, error: ApiError) -> bytes:
        return error.encoded()


class ItemEvents:
    """Server-sent events of one answer: a message item while it is sampled, then one item a call."""

    ping = b": waiting\n\n"

    def __init__(self, chat: ChatRequest, turn_id: str, envelope: Item) -> None:
        self._chat = chat
        self._turn_id = turn_id
        self._envelope = envelope
        self._sent = 0
        self._open = False

    def first(self) -> bytes:
        begun = self._envelope | {"status": "in_progress", "output": [], "usage": None}
        return self._event("response.created", response=begun) + self._event(
            "response.in_progress", response=begun
        )

    def text(self, piece: str) -> bytes:
        delta = self._text_event("response.output_text.delta", delta=piece, logprobs=[])
        if self._open:
            return delta
        self._open = True
        item = _message(self._turn_id, None)
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        start = self._event("response.output_item.added", output_index=0, item=item)
        return start + self._text_event("response.content_part.added", part=part) + delta

    def last(self, answer: Answer, said: str) -> bytes:
        rest = rest_of(answer, said)
        events = [self.text(rest)] if rest or not (said or answer.calls) else []
        for index, item in enumerate(items_of(self._chat, answer)):
            events += self._done(index, item)
        response = _finished(self._envelope, self._chat, answer)
        name = "response.incomplete" if response["status"] == "incomplete" else "response.completed"
        return b"".join(events) + self._event(name, response=response)

    def failed(self, error: ApiError) -> bytes:
        told = {"code": error.code, "message": error.message}
        failed = self._envelope | {"status": "failed", "output": [], "usage": None, "error": told}
        return self._event("response.failed", response=failed)

    def _done(self, index: int, item: Item) -> Iterator[bytes]:
        if item["type"] == "message":
            (part,) = item["content"]
            yield self._text_event("response.output_text.done", text=part["text"], logprobs=[])
            yield self._text_event("response.content_part.done", part=part)
        else:
            yield from self._call(index, item)
        yield self._event("response.output_item.done", output_index=index, item=item)

    def _call(self, index: int, item: Item) -> Iterator[bytes]:
        where = {"output_index": index, "item_id": item["id"]}
        field = {"function_call": "arguments", "custom_tool_call": "input"}.get(item["type"])
        begun = item | {"status": "in_progress"} | ({field: ""} if field else {})
        yield self._event("response.output_item.added", output_index=index, item=begun)
        if field:
            kind = "function_call_arguments" if field == "arguments" else "custom_tool_call_input"
            for piece in pieces(item[field]):
                yield self._event(f"response.{kind}.delta", **where, delta=piece)
            named = {"name": item["name"]} if field == "arguments" else {}
            yield self._event(f"response.{kind}.done", **where, **named, **{field: item[field]})

    def _text_event(self, kind: str, **fields: Any) -> bytes:
        where = {"item_id": wire_id("msg_", self._turn_id), "output_index": 0, "content_index": 0}
        return self._event(kind, **where, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        value = {"type": kind, "sequence_number": self._sent} | fields
        self._sent += 1
        return f"event: {kind}\ndata: {json.dumps(value)}\n\n".encode()


def items_of(chat: ChatRequest, answer: Answer) -> list[Item]:
    """The output: a message if anything was said or nothing was called, then the calls."""
    content = answer.message["content"] or ""
    said = [_message(answer.turn.id, content)] if content or not answer.calls else []
    return said + [_call(chat, call, wire_id("", answer.turn.id)) for call in answer.calls]


def _message(turn_id: str, text: str | None) -> Item:
    part: Item = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "id": wire_id("msg_", turn_id),
        "type": "message",
        "role": "assistant",
        "status": "in_progress" if text is None else "completed",
        "content": [] if text is None else [part],
    }


def _call(chat: ChatRequest, call: Item, tail: str) -> Item:
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    item = {"call_id": call["id"], "status": "completed"}
    value = json.loads(arguments)
    shape = chat.shapes.get(name)
    if shape == "custom" and isinstance(value.get("input"), str):
        id_ = f"ctc_{call['id']}_{tail}"
        return {"id": id_, "type": "custom_tool_call", "name": name, "input": value["input"]} | item
    if shape == "local_shell" and isinstance(value.get("command"), list):
        return {"id": f"lsh_{call['id']}_{tail}", "type": "local_shell_call", "action": _action(value)} | item
    return {
        "id": f"fc_{call['id']}_{tail}",
        "type": "function_call",
        "name": name,
        "arguments": arguments,
    } | item


def _action(value: Item) -> Item:
    action = {"type": "exec", "command": value["command"], "env": {}}
    names = {"workdir": "working_directory", "timeout_ms": "timeout_ms"}
    return action | {theirs: value[ours] for ours, theirs in names.items() if ours in value}


def _envelope(chat: ChatRequest, turn_id: str, created: float) -> Item:
    return {
        "id": wire_id("resp_", turn_id),
        "object": "response",
        "created_at": int(created),
        "model": chat.model,
        "error": None,
        "incomplete_details": None,
        "instructions": chat.echo.get("instructions"),
        "max_output_tokens": chat.max_tokens,
        "metadata": chat.echo.get("metadata") or {},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": chat.temperature,
        "text": chat.echo.get("text") or {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": chat.echo.get("tools") or [],
        "top_p": 1.0,
        "truncation": "disabled",
    }


def _finished(envelope: Item, chat: ChatRequest, answer: Answer) -> Item:
    cut = answer.finish == "length"
    return envelope | {
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": items_of(chat, answer),
        "usage": _usage(answer.turn),
        "ostinato": extra_of(answer.turn),
    }


def _usage(turn: Turn) -> Item:
    prompt, completion = len(turn.prompt_ids), len(turn.completion.ids)
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + completion,
    }
