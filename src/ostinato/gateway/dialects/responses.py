"""OpenAI's Responses: requests in the gateway's one form, replies whole and streamed.

Items become messages: an assistant's reasoning, its text and the calls beside it are one turn. The gateway
keeps no responses: clients send the whole conversation.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ostinato.gateway.dialects import reasoning
from ostinato.gateway.dialects.base import Answer, extra_of, pieces, rest_of, wire_id
from ostinato.gateway.dialects.request import (
    ChatRequest,
    Message,
    check_fields,
    check_object,
    field_names,
    function_tool,
    hints_of,
    in_order_of_calls,
    max_tokens_of,
    model_of,
    named_once,
    offers_tools,
    typed,
)
from ostinato.gateway.dialects.response_input import SHELL_FIELDS, messages_of
from ostinato.gateway.dialects.sampling import sampling_of, structure_of
from ostinato.gateway.errors import ApiError, invalid
from ostinato.types import Turn

READ = field_names(
    """
    model input instructions tools tool_choice stream max_output_tokens text
    temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty
    prompt_cache_key metadata parallel_tool_calls conversation include
    """
)
IGNORED = field_names(
    """
    store reasoning service_tier user safety_identifier prompt_cache_options
    prompt_cache_retention stream_options client_metadata context_management image
    """
)
"""Hints about reasoning, storing and caching: none changes a token here."""
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "top_logprobs": (0,),
    "background": (False,),
    "truncation": ("disabled",),
}
HOSTED = re.compile(r"(web_search|file_search|image_generation|code_interpreter|tool_search)\w*")
"""Tools that the provider would run. They are not offered to the model."""
GROUPED = "namespace"
"""The type of a group of tools. It is not offered: calls name the group, which a prompt cannot express."""
SHELL = {
    "type": "object",
    "properties": {
        "command": {"type": "array", "items": {"type": "string"}},
        "workdir": {"type": "string"},
        "timeout_ms": {"type": "integer"},
    },
    "required": ["command"],
}
FREEFORM = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""The parameters under which a tool that takes plain text is shown to a model that writes JSON."""
LOGPROBS = "message.output_text.logprobs"
ENCRYPTED = "reasoning.encrypted_content"
"""What a client includes that keeps the whole conversation itself."""
ECHOED = ("instructions", "tools", "tool_choice", "metadata", "text", "include")


def parse_responses(body: object) -> ChatRequest:
    """Return the checked request. Raise ApiError 400 that names a field it cannot read or honour."""
    body = check_object(body)
    check_fields(body, READ, IGNORED, NEUTRAL)
    if body.get("conversation") is not None:
        message = "conversation is not supported: the gateway keeps none, send the whole input"
        raise invalid(message, "conversation", code="unsupported_parameter")
    if LOGPROBS in typed(body, "include", list, []):
        raise invalid(f"{LOGPROBS} is not supported", "include", code="unsupported_parameter")
    structure = structure_of(typed(body, "text", dict, {}).get("format"), "text.format")
    tools, shapes = _tools(typed(body, "tools", list, []))
    instructions = typed(body, "instructions", str, "")
    system = [{"role": "system", "content": instructions}] if instructions else []
    return ChatRequest(
        model=model_of(body),
        messages=in_order_of_calls((*system, *messages_of(body.get("input")))),
        tools=tools if offers_tools(body.get("tool_choice")) else (),
        stream=bool(typed(body, "stream", bool, False)),
        max_tokens=max_tokens_of(body, "max_output_tokens"),
        sampling=sampling_of(body, structure),
        shapes=shapes,
        one_call=not typed(body, "parallel_tool_calls", bool, True),
        hints=hints_of(body, "prompt_cache_key"),
        echo={name: body[name] for name in ECHOED if body.get(name)},
    )


def _tools(tools: list[Any]) -> tuple[tuple[Message, ...], dict[str, str]]:
    """Return the tools to offer to the model, and the shapes of those that the client knows in another
    one."""
    offered: list[Message] = []
    shapes: dict[str, str] = {}
    for i, tool in enumerate(tools):
        shown, shape = _tool(tool, f"tools[{i}]")
        offered += shown
        if shape is not None:
            shapes[shown[0]["function"]["name"]] = shape
    return named_once(offered), shapes


def _tool(tool: Any, where: str) -> tuple[list[Message], str | None]:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if not isinstance(kind, str):
        raise invalid(f"{where} must be an object with a type", where)
    if HOSTED.fullmatch(kind) or kind == GROUPED:
        return [], None
    if kind == "function":
        parameters = tool.get("parameters") or {}
        return [function_tool(tool.get("name"), tool.get("description"), parameters, where)], None
    if kind == "custom":
        return [function_tool(tool.get("name"), tool.get("description"), FREEFORM, where)], "custom"
    if kind == "local_shell":
        description = "Runs a command and returns its output."
        return [function_tool("local_shell", description, SHELL, where)], "local_shell"
    raise invalid(f"{where} has the type {kind[:40]!r}, use function", where, code="unsupported_tool")


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
    """The server-sent events of one answer: a message item while it is sampled, then one item for each
    call."""

    ping = b": waiting\n\n"

    def __init__(self, chat: ChatRequest, turn_id: str, envelope: Item) -> None:
        self._chat = chat
        self._turn_id = turn_id
        self._envelope = envelope
        self._sent = 0
        self._open = False
        self._text_index = 0

    def first(self) -> bytes:
        begun = self._envelope | {"status": "in_progress", "output": [], "usage": None}
        kinds = ("response.created", "response.in_progress")
        return b"".join(self._event(kind, response=begun) for kind in kinds)

    def text(self, piece: str) -> bytes:
        delta = self._text_event("response.output_text.delta", delta=piece, logprobs=[])
        if self._open:
            return delta
        self._open = True
        message = _message_item(self._turn_id, None)
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        start = self._event("response.output_item.added", output_index=self._text_index, item=message)
        return start + self._text_event("response.content_part.added", part=part) + delta

    def last(self, answer: Answer, sent: str) -> bytes:
        rest, items, events = rest_of(answer, sent), items_of(self._chat, answer), list[bytes]()
        if items[0]["type"] == "reasoning" and not sent:
            begun = items[0] | {"content": [], "encrypted_content": None}
            events.append(self._event("response.output_item.added", output_index=0, item=begun))
            self._text_index = 1
        events += [self.text(rest)] if rest or not (sent or answer.calls) else []
        for index, item in enumerate(items):
            events += self._done(index, item)
        response = _finished(self._envelope, self._chat, answer)
        name = "response.incomplete" if response["status"] == "incomplete" else "response.completed"
        return b"".join(events) + self._event(name, response=response)

    def failed(self, error: ApiError) -> bytes:
        cause = {"code": error.code, "message": error.message}
        failed: Item = {"status": "failed", "output": [], "usage": None, "error": cause}
        return self._event("response.failed", response=self._envelope | failed)

    def _done(self, index: int, item: Item) -> Iterator[bytes]:
        if item["type"] == "message":
            (part,) = item["content"]
            yield self._text_event("response.output_text.done", text=part["text"], logprobs=[])
            yield self._text_event("response.content_part.done", part=part)
        elif item["type"] != "reasoning":
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
        where = {"item_id": wire_id("msg_", self._turn_id), "output_index": self._text_index}
        where |= {"content_index": 0}
        return self._event(kind, **where, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        value = {"type": kind, "sequence_number": self._sent} | fields
        self._sent += 1
        return f"event: {kind}\ndata: {json.dumps(value)}\n\n".encode()


def items_of(chat: ChatRequest, answer: Answer) -> list[Item]:
    """Return the output: reasoning, a message if there is text or there are no calls, then the calls."""
    content = answer.message["content"] or ""
    encrypted = ENCRYPTED in (chat.echo.get("include") or ())
    thought = [reasoning.item(answer, encrypted=encrypted)] if answer.reasoning else []
    message = [_message_item(answer.turn.id, content)] if content or not answer.calls else []
    return thought + message + [_call_item(chat, call, wire_id("", answer.turn.id)) for call in answer.calls]


def _message_item(turn_id: str, text: str | None) -> Item:
    part: Item = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "id": wire_id("msg_", turn_id),
        "type": "message",
        "role": "assistant",
        "status": "in_progress" if text is None else "completed",
        "content": [] if text is None else [part],
    }


def _call_item(chat: ChatRequest, call: Item, tail: str) -> Item:
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    item = {"call_id": call["id"], "status": "completed"}
    value = json.loads(arguments)
    shape = chat.shapes.get(name)
    if shape == "custom" and isinstance(value.get("input"), str):
        id_ = f"ctc_{call['id']}_{tail}"
        return {"id": id_, "type": "custom_tool_call", "name": name, "input": value["input"]} | item
    if shape == "local_shell" and isinstance(value.get("command"), list):
        return {"id": f"lsh_{call['id']}_{tail}", "type": "local_shell_call", "action": _action(value)} | item
    id_ = f"fc_{call['id']}_{tail}"
    return {"id": id_, "type": "function_call", "name": name, "arguments": arguments} | item


def _action(value: Item) -> Item:
    action = {"type": "exec", "command": value["command"], "env": {}}
    return action | {theirs: value[ours] for ours, theirs in SHELL_FIELDS.items() if ours in value}


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
        "parallel_tool_calls": not chat.one_call,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": chat.sampling.temperature,
        "text": chat.echo.get("text") or {"format": {"type": "text"}},
        "tool_choice": chat.echo.get("tool_choice") or "auto",
        "tools": chat.echo.get("tools") or [],
        "top_p": chat.sampling.top_p,
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
