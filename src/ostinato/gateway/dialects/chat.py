"""OpenAI's chat completions: requests in the gateway's one form, replies whole and streamed.

Requests are checked by hand, because a schema library's errors do not say which value would be accepted.
"""

import json
from collections.abc import Mapping
from typing import Any

import orjson

from ostinato.gateway.dialects import reasoning
from ostinato.gateway.dialects.base import Answer, extra_of, pieces, rest_of
from ostinato.gateway.dialects.request import (
    ChatRequest,
    Message,
    arguments_text,
    check_fields,
    check_object,
    field_names,
    hints_of,
    in_order_of_calls,
    max_tokens_of,
    merge,
    model_of,
    named_once,
    offers_tools,
    stops_of,
    text_of,
    typed,
)
from ostinato.gateway.dialects.sampling import sampling_of, seed_of, structure_of, vllm_structure_of
from ostinato.gateway.errors import ApiError, invalid
from ostinato.types import Turn

ROLES = ("system", "developer", "user", "assistant", "tool")
READ = field_names(
    """
    model messages tools stream stream_options max_tokens max_completion_tokens seed stop
    temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty
    tool_choice parallel_tool_calls response_format structured_outputs prompt_cache_key
    """
)
IGNORED = field_names(
    """
    user metadata store service_tier safety_identifier prompt_cache_options prompt_cache_retention
    reasoning_effort verbosity prediction
    """
)
"""Fields that cannot change what this model samples: it has no reasoning to tune."""
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "modalities": (["text"],),
}
TEXT = {"text"}


def parse_chat(body: object) -> ChatRequest:
    """Return the checked request. Raise ApiError 400 that names a field it cannot read or honour."""
    body = check_object(body)
    check_fields(body, READ, IGNORED, NEUTRAL)
    options = typed(body, "stream_options", dict, {})
    tools = _tools(typed(body, "tools", list, []))
    structure = structure_of(body.get("response_format"), "response_format") or vllm_structure_of(body)
    return ChatRequest(
        model=model_of(body),
        messages=in_order_of_calls(_messages(body.get("messages"))),
        tools=tools if offers_tools(body.get("tool_choice")) else (),
        stream=bool(typed(body, "stream", bool, False)),
        include_usage=options.get("include_usage") is True,
        max_tokens=max_tokens_of(body, "max_completion_tokens", "max_tokens"),
        sampling=sampling_of(body, structure),
        seeded=seed_of(body) is not None,
        stop=stops_of(body, "stop"),
        one_call=not typed(body, "parallel_tool_calls", bool, True),
        hints=hints_of(body, "prompt_cache_key"),
    )


def _messages(messages: object) -> tuple[Message, ...]:
    if not isinstance(messages, list) or not messages:
        raise invalid("messages must be a list with at least one message", "messages")
    read: list[Message] = []
    for i, each in enumerate(messages):
        message = _message(each, f"messages[{i}]")
        if read and _are_one_turn(read[-1], message):
            read[-1] = merge(read[-1], message)
        else:
            read.append(message)
    return tuple(read)


def _are_one_turn(one: Message, other: Message) -> bool:
    """Return whether a client split a turn in two: the text of an answer, and the calls beside it."""
    both = one["role"] == other["role"] == "assistant"
    return both and not one.get("tool_calls") and bool(other.get("tool_calls")) and not other.get("content")


def _message(message: object, where: str) -> Message:
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        raise invalid(f"{where} must be an object with role {', '.join(ROLES)}", where)
    content = message.get("content")
    if isinstance(content, list):
        # The model's own text is one; the parts of others are texts beside each other.
        joint = "" if message["role"] == "assistant" else "\n\n"
        message = message | {"content": text_of(content, f"{where}.content", TEXT, joint)}
    elif not isinstance(content, str) and not (content is None and message["role"] == "assistant"):
        raise invalid(f"{where}.content must be text", f"{where}.content")
    for name in ("function_call", "refusal", "audio"):
        if message.get(name):
            raise invalid(f"{where}.{name} is not supported", f"{where}.{name}", code="unsupported_content")
    if message.get("tool_calls"):
        message = message | {"tool_calls": _calls(message, where)}
    if message["role"] == "assistant":
        return reasoning.of_chat(message)
    return message | {"role": "system"} if message["role"] == "developer" else message


def _calls(message: Mapping[str, Any], where: str) -> list[Message]:
    calls, where = message["tool_calls"], f"{where}.tool_calls"
    if message["role"] != "assistant" or not isinstance(calls, list):
        raise invalid(f"{where} must be a list on an assistant message", where)
    read: list[Message] = []
    for i, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise invalid(f"{where}[{i}] needs function.name as a string", f"{where}[{i}]")
        arguments = arguments_text(function.get("arguments"), f"{where}[{i}].function.arguments")
        read.append(call | {"function": function | {"arguments": arguments}})
    return read


def _tools(tools: list[Any]) -> tuple[Message, ...]:
    for i, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not (isinstance(function.get("name"), str) and function["name"]):
            raise invalid(f"tools[{i}] must be a function tool with a name", f"tools[{i}]")
        if not isinstance(function.get("parameters", {}), dict):
            raise invalid(f"tools[{i}].function.parameters must be an object", f"tools[{i}]")
    return named_once(tools)


DONE = b"data: [DONE]\n\n"


class Chat:
    """`/v1/chat/completions`."""

    name = "chat"

    def parse(self, body: object) -> ChatRequest:
        return parse_chat(body)

    def whole(self, chat: ChatRequest, answer: Answer) -> bytes:
        message = answer.message | reasoning.for_chat(answer.reasoning)
        choice = {"index": 0, "message": message, "finish_reason": _finish(answer), "logprobs": None}
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
    """The server-sent events of one answer."""

    ping = b": waiting\n\n"

    def __init__(self, envelope: dict[str, Any], *, include_usage: bool) -> None:
        self._envelope = envelope
        self._include_usage = include_usage

    def first(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def text(self, piece: str) -> bytes:
        return self._chunk({"content": piece})

    def last(self, answer: Answer, sent: str) -> bytes:
        rest = rest_of(answer, sent)
        # Readers of lines have limits, so that a long text comes in pieces.
        thoughts = pieces(answer.reasoning) if answer.reasoning else []
        events = [self._chunk(reasoning.for_chat(piece)) for piece in thoughts]
        events += [self.text(piece) for piece in pieces(rest)] if rest else []
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
        chunks = [self._chunk({"tool_calls": [whole]})]
        for piece in others:
            chunks.append(self._chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
        return chunks

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
    # The JSON is ASCII, since some clients end a line at U+2028 and similar characters.
    return b"data: " + json.dumps(value).encode() + b"\n\n"
