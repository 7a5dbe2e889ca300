"""The parser of completions into assistant messages, and the digests by which equal messages are known."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ostinato.gateway.dialects.base import Answer
from ostinato.gateway.dialects.request import ChatRequest, Message
from ostinato.gateway.tokens.tool_calls import as_declared
from ostinato.model.families import Parsed, Renderer, assistant_message
from ostinato.types import Completion, FinishReason, Turn, call_id

MOST_WHOLE = 2**53
"""Up to here a double holds every whole number."""
START = hashlib.blake2b(b"conversation", digest_size=16).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReply:
    """A parsed completion, and the stop text that ended it."""

    parsed: Parsed
    stop: str | None = None


def parse_reply(
    renderer: Renderer,
    completion: Completion,
    stops: Sequence[str],
    *,
    one_call: bool = False,
    tools: Sequence[Message] = (),
) -> ParsedReply:
    """Parse a completion. The same completion, limits and tools always give the same result."""
    stop = None
    if completion.finish is FinishReason.STOP_SEQUENCE:
        text = renderer.tokenizer.decode(completion.ids)
        ends = ((text.find(stop), stop) for stop in stops if stop in text)
        at, stop = min(ends, default=(len(text), None))
        parsed = renderer.parse_text(text[:at])
    else:
        parsed = renderer.parse(completion.ids)
    if parsed.tool_calls:
        parsed = replace(parsed, tool_calls=as_declared(parsed.tool_calls, tools))
    if one_call:  # a family that writes its calls as one list could not be stopped after the first
        parsed = replace(parsed, tool_calls=parsed.tool_calls[:1])
    return ParsedReply(parsed=parsed, stop=stop)


def answer_of(turn: Turn, reply: ParsedReply) -> Answer:
    """Return the answer of a turn; it is always the same for the same turn."""
    parsed = reply.parsed
    message = assistant_message(parsed, [call_id(turn.index, i) for i in range(len(parsed.tool_calls))])
    for call in message.get("tool_calls", ()):
        call["function"] = {name: plain(text) for name, text in call["function"].items()}
    if "reasoning_content" in message:
        message["reasoning_content"] = plain(message["reasoning_content"])
    if parsed.broken is not None and message["content"] is None:
        message["content"] = ""
    finish = "tool_calls" if "tool_calls" in message else turn.completion.finish.value
    return Answer(turn=turn, message=message, finish=finish, stop=reply.stop)


def plain(text: str) -> str:
    """Replace halves of surrogate pairs, which JSON can hold and UTF-8 cannot, by question marks."""
    return text.encode(errors="replace").decode()


def prefix_digests(chat: ChatRequest) -> list[bytes]:
    """Return a list whose entry i is a digest of the tools and of what the first i messages say."""
    digests = [_digest(START, json.dumps(chat.tools).encode()) if chat.tools else START]
    for message in chat.messages:
        digests.append(next_digest(digests[-1], message))
    return digests


def without_defaults(messages: Sequence[Message], tools: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages, without the arguments of calls that are equal to the default in the tool's schema.

    Clients fill in defaults before they keep a call in the history. What comes back then differs from what
    was sampled, and is still the same call.
    """
    defaults = {name: values for tool in tools for name, values in _defaults(tool["function"])}
    return tuple(_stripped(message, defaults) if defaults else message for message in messages)


def _stripped(message: Message, defaults: Mapping[str, Mapping[str, Any]]) -> Message:
    if not message.get("tool_calls"):
        return message
    calls = [
        _stripped_call(call, defaults.get(call["function"]["name"], {})) for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def _defaults(function: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    properties = function.get("parameters", {}).get("properties")
    if not isinstance(properties, dict):
        return []
    schemas = ((name, schema) for name, schema in properties.items() if isinstance(schema, dict))
    values = {name: schema["default"] for name, schema in schemas if "default" in schema}
    return [(function["name"], values)] if values else []


def _stripped_call(call: Mapping[str, Any], defaults: Mapping[str, Any]) -> Mapping[str, Any]:
    name, arguments = _call_content(call["function"])
    if not defaults or not isinstance(arguments, dict):
        return call
    kept = {key: value for key, value in arguments.items() if not _is_default(key, value, defaults)}
    if len(kept) == len(arguments):
        return call
    return {**call, "function": {"name": name, "arguments": json.dumps(kept, ensure_ascii=False)}}


def _is_default(key: str, value: object, defaults: Mapping[str, Any]) -> bool:
    # The values are compared as JSON, since in Python False equals 0.
    return key in defaults and _ordered(value) == _ordered(defaults[key])


def _ordered(value: Any) -> str:
    return json.dumps(_as_double(value), sort_keys=True)


def next_digest(before: bytes, message: Message) -> bytes:
    """Return the digest of a conversation that had the digest `before` and then got `message`."""
    return _digest(before, canonical_form(message))


def canonical_form(message: Message) -> bytes:
    """Return bytes that are equal for two messages exactly when they say the same.

    Ids do not count, nor the formatting of arguments, nor white space around an assistant's text, nor its
    reasoning, which many clients leave out. Sampled tokens are kept as they are, so nothing depends on how a
    client writes them.
    """
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "".join(part["text"] for part in content)
    calls = message.get("tool_calls") or ()
    if message["role"] == "assistant":
        content = content.strip()
    called = json.dumps([_call_content(call["function"]) for call in calls], sort_keys=True) if calls else ""
    return f"{message['role']}\0{len(content)}\0{content}\0{called}".encode(errors="surrogatepass")


def _call_content(function: Mapping[str, Any]) -> list[Any]:
    """Return a call's name and its arguments as values, since clients may format the JSON anew."""
    try:
        return [function["name"], _as_double(json.loads(function["arguments"]))]
    except (ValueError, RecursionError):
        return [function["name"], function["arguments"]]


def _as_double(value: Any) -> Any:
    """Return the value with its numbers as clients hold them, which read each as a double.

    `30.0` comes back as `30`, and what a double cannot hold comes back as its neighbour; some readers err in
    the last digit, so 15 of them count. Fields that are null count as absent, since typed clients leave them
    out, or write them where there was none.
    """
    if isinstance(value, dict):
        return {key: _as_double(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_as_double(one) for one in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    try:
        double = float(value)
    except OverflowError:  # a client that reads it at all reads it as endless
        return math.copysign(math.inf, value)
    return int(double) if abs(double) < MOST_WHOLE and double.is_integer() else float(f"{double:.15g}")


def _digest(before: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(data, key=before, digest_size=16).digest()
