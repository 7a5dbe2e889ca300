"""Anthropic's Messages: requests in the gateway's one form, replies whole and streamed, and errors.

Blocks become messages: text stays text, `tool_use` becomes a call of the assistant, each `tool_result` a tool
message. Thinking that this gateway signed becomes reasoning; another model's is left out.
"""

import json
import re
from collections.abc import Mapping
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
    in_order_of_calls,
    items,
    max_tokens_of,
    merge,
    model_of,
    named_once,
    offers_tools,
    part_text,
    stops_of,
    text_of,
    typed,
)
from ostinato.gateway.dialects.sampling import sampling_of, structure_of
from ostinato.gateway.errors import ApiError, invalid

READ = field_names(
    """
    model messages system tools tool_choice stream max_tokens stop_sequences metadata
    temperature top_p top_k output_config
    """
)
IGNORED = field_names(
    """
    thinking cache_control betas service_tier context_management container diagnostics inference_geo
    speed user_profile_id workspace_id billing_policy fallbacks
    """
)
"""Hints about thinking, caching, billing and the provider's own context editing: none changes a token
here."""
NEUTRAL: Mapping[str, tuple[Any, ...]] = {"mcp_servers": ([],)}
TEXT = {"text"}
ROLES = ("user", "assistant", "system")
SKIPPED = ("redacted_thinking",)
"""Blocks that only the provider who made them can read. This gateway makes none."""
HOSTED = re.compile(r"(web_search|web_fetch|code_execution|tool_search_tool|mcp_toolset|advisor)\w*")
"""Tools that the provider would run. They are not offered to the model."""
FAILED = "[the call failed] "
"""The words that the model reads before a result which the client marked as an error."""
ATTRIBUTION = "x-anthropic-billing-header:"
"""The start of a block in Claude Code's system prompt that differs in every request and is no instruction."""
SESSION = re.compile(r"session_([0-9a-fA-F-]{36})$")
JOINT = "\n\n"


def parse_messages(body: object) -> ChatRequest:
    """Return the checked request. Raise ApiError 400 that names a field it cannot read or honour."""
    body = check_object(body)
    check_fields(body, READ, IGNORED, NEUTRAL)
    if body.get("max_tokens") is None:
        raise invalid("max_tokens is required", "max_tokens")
    return _request(body)


def parse_count(body: object) -> ChatRequest:
    """Return a checked request to count tokens, in which `max_tokens` may be missing."""
    body = check_object(body)
    check_fields(body, READ, IGNORED, NEUTRAL)
    return _request(body)


def _request(body: Mapping[str, Any]) -> ChatRequest:
    choice = typed(body, "tool_choice", dict, {})
    offered = offers_tools(choice.get("type"))
    structure = structure_of(typed(body, "output_config", dict, {}).get("format"), "output_config.format")
    return ChatRequest(
        model=model_of(body),
        messages=in_order_of_calls((*_system(body.get("system")), *_messages(body.get("messages")))),
        tools=_tools(body) if offered else (),
        stream=bool(typed(body, "stream", bool, False)),
        max_tokens=max_tokens_of(body, "max_tokens"),
        sampling=sampling_of(body, structure),
        stop=stops_of(body, "stop_sequences"),
        one_call=typed(choice, "disable_parallel_tool_use", bool, False),
        hints=_hints(typed(body, "metadata", dict, {})),
    )


def _hints(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the session that Claude Code puts at the end of `user_id`, or in the JSON that it holds."""
    user = metadata.get("user_id")
    if not isinstance(user, str):
        return {}
    if match := SESSION.search(user):
        return {"metadata.user_id": match[1]}
    try:
        session = json.loads(user)["session_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return {"metadata.user_id": session} if isinstance(session, str) else {}


def _system(system: object) -> list[Message]:
    if system is None:
        return []
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
    if not isinstance(blocks, list):
        raise invalid("system must be text or a list of text blocks", "system")
    texts = [part_text(block, f"system[{i}]", TEXT) for i, block in enumerate(blocks)]
    text = JOINT.join(text for text in texts if not text.startswith(ATTRIBUTION))
    return [{"role": "system", "content": text}] if text else []


def _messages(messages: object) -> list[Message]:
    if not isinstance(messages, list) or not messages:
        raise invalid("messages must be a list with at least one message", "messages")
    read: list[Message] = []
    for i, message in enumerate(messages):
        read += _message(message, f"messages[{i}]")
    if not read:
        raise invalid("messages hold nothing that the model can read", "messages")
    if read[-1]["role"] == "assistant":
        raise invalid("a prefilled answer is not supported: messages must end with the user", "messages")
    return _merged(read)


def _message(message: object, where: str) -> list[Message]:
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        raise invalid(f"{where} must be an object with role user or assistant", where)
    content = message.get("content")
    if isinstance(content, str):
        return [{"role": message["role"], "content": content}]
    if not isinstance(content, list):
        raise invalid(f"{where}.content must be text or a list of blocks", f"{where}.content")
    blocks = [(block, f"{where}.content[{i}]") for i, block in enumerate(content)]
    if message["role"] == "assistant":
        said = _assistant(blocks)
        is_thought = bool(blocks) and all(block["type"] in ("thinking", *SKIPPED) for block, _ in blocks)
        # Of an answer that was another model's thinking alone nothing is left.
        return [] if is_thought and reasoning.FIELD not in said else [said]
    return _user(message["role"], blocks)


def _assistant(blocks: list[tuple[Any, str]]) -> Message:
    text, thought, calls = "", "", []
    for block, where in blocks:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "thinking":
            thought += reasoning.of_block(block)
        elif kind == "tool_use":
            calls.append(_call(block, where))
        elif kind not in SKIPPED:
            text += part_text(block, where, TEXT)
    message: Message = {"role": "assistant", "content": text or None} | reasoning.in_message(thought)
    return {**message, "tool_calls": calls} if calls else message


def _call(block: Mapping[str, Any], where: str) -> Message:
    name, value = block.get("name"), block.get("input")
    if not isinstance(name, str) or not isinstance(value, dict):
        raise invalid(f"{where}: a tool_use needs a name and an input object", where)
    arguments = json.dumps(value, ensure_ascii=False)
    return {"id": block.get("id"), "type": "function", "function": {"name": name, "arguments": arguments}}


def _user(role: str, blocks: list[tuple[Any, str]]) -> list[Message]:
    """Return a message for each tool result, and one for each run of neighbouring texts."""
    messages: list[dict[str, Any]] = []
    for block, where in blocks:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            messages.append(_result(block, where))
            continue
        text = part_text(block, where, TEXT)
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += JOINT + text
        else:
            messages.append({"role": role, "content": text})
    return list(messages)


def _result(block: Mapping[str, Any], where: str) -> dict[str, Any]:
    content = block.get("content")
    text = "" if content is None else text_of(content, f"{where}.content", TEXT, "\n")
    if typed(block, "is_error", bool, False):
        text = FAILED + text
    return {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text}


def _merged(messages: list[Message]) -> list[Message]:
    """Merge neighbouring messages of the assistant: clients may split one turn into several."""
    merged: list[Message] = []
    for message in messages:
        if merged and message["role"] == merged[-1]["role"] == "assistant":
            merged[-1] = merge(merged[-1], message)
        else:
            merged.append(message)
    return merged


def _tools(body: Mapping[str, Any]) -> tuple[Message, ...]:
    return named_once(tool for tool in items(body, "tools", _tool) if tool is not None)


def _tool(tool: Any, where: str) -> Message | None:
    if not isinstance(tool, dict):
        raise invalid(f"{where} must be an object", where)
    kind = tool.get("type") or "custom"
    if isinstance(kind, str) and HOSTED.fullmatch(kind):
        return None
    if kind != "custom":
        message = f"{where} has the type {str(kind)[:40]!r}: give a tool with an input_schema instead"
        raise invalid(message, where, code="unsupported_tool")
    schema = tool.get("input_schema", {})
    return function_tool(tool.get("name"), tool.get("description"), schema, where)


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
        turn, content = answer.turn, [reasoning.block(answer.reasoning)] if answer.reasoning else []
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
    """Return an error in Anthropic's shape. Clients compact when it says that the prompt is too long."""
    kind = KINDS.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    too_long = error.code == "context_length_exceeded"
    message = f"prompt is too long: {error.message}" if too_long else error.message
    return {"type": "error", "error": {"type": kind, "message": message, "code": error.code}}


class Blocks:
    """The server-sent events of one answer: a text block while it is sampled, then one block for each
    call."""

    ping = b'event: ping\ndata: {"type": "ping"}\n\n'

    def __init__(self, envelope: dict[str, Any]) -> None:
        self._envelope = envelope
        self._open = False
        self._index = 0

    def first(self) -> bytes:
        message = self._envelope | {"content": [], "stop_reason": None, "stop_sequence": None}
        return _event("message_start", message=message)

    def text(self, piece: str) -> bytes:
        delta = _event("content_block_delta", index=self._index, delta={"type": "text_delta", "text": piece})
        if self._open:
            return delta
        self._open = True
        return self._start({"type": "text", "text": ""}) + delta

    def last(self, answer: Answer, sent: str) -> bytes:
        rest, events = rest_of(answer, sent), []
        if answer.reasoning and not sent:
            events.append(self._thinking(reasoning.block(answer.reasoning)))
        if rest or not (sent or answer.calls):
            events += [self.text(piece) for piece in pieces(rest)]
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

    def _thinking(self, block: dict[str, str]) -> bytes:
        deltas = [
            *({"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])),
            {"type": "signature_delta", "signature": block["signature"]},
        ]
        start = self._start({"type": "thinking", "thinking": "", "signature": ""})
        events = [_event("content_block_delta", index=self._index, delta=delta) for delta in deltas]
        return start + b"".join(events) + self._stop()

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
    # The JSON is ASCII, since some clients end a line at U+2028 and similar characters.
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | fields)}\n\n".encode()
