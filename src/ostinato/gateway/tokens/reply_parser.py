"""How a completion reads as an assistant message, and what makes two messages the same."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ostinato.gateway.dialects.base import Answer
from ostinato.gateway.dialects.request import ChatRequest, Message
from ostinato.model.renderer import Parsed, Renderer, assistant_message, parse_text
from ostinato.types import Completion, FinishReason, Turn, call_id

START = hashlib.blake2b(b"conversation", digest_size=16).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReply:
    """A completion as read; `stop` is the stop text that ended it."""

    parsed: Parsed
    stop: str | None = None


def parse_reply(renderer: Renderer, completion: Completion, stops: Sequence[str]) -> ParsedReply:
    """The same completion and stops always read alike."""
    if completion.finish is not FinishReason.STOP_SEQUENCE:
        return ParsedReply(parsed=renderer.parse(completion.ids))
    text = renderer.tokenizer.decode(completion.ids)
    at, stop = min(((text.find(stop), stop) for stop in stops if stop in text), default=(len(text), None))
    return ParsedReply(parsed=parse_text(text[:at]), stop=stop)


def answer_of(turn: Turn, found: ParsedReply) -> Answer:
    """The answer of a turn; the same turn always gives the same one."""
    parsed = found.parsed
    message = assistant_message(parsed, [call_id(turn.index, i) for i in range(len(parsed.tool_calls))])
    for call in message.get("tool_calls", ()):
        call["function"] = {name: plain(text) for name, text in call["function"].items()}
    if parsed.broken is not None and message["content"] is None:
        message["content"] = ""
    finish = "tool_calls" if "tool_calls" in message else turn.completion.finish.value
    return Answer(turn=turn, message=message, finish=finish, stop=found.stop)


def plain(text: str) -> str:
    """`text` with halves of surrogate pairs, which JSON can hold and UTF-8 cannot, as question marks."""
    return text.encode(errors="replace").decode()


def prefix_digests(chat: ChatRequest) -> list[bytes]:
    """Entry i is a digest of the tools and the first i messages, whatever shape the client gave them."""
    found = [_digest(START, json.dumps(chat.tools).encode()) if chat.tools else START]
    for message in chat.messages:
        found.append(next_digest(found[-1], message))
    return found


def without_defaults(messages: Sequence[Message], tools: Sequence[Message]) -> tuple[Message, ...]:
    """The messages, without the arguments of calls that say what the tool's schema says by default.

    Clients fill defaults in before they keep a call in the history, so that what comes back is not what was
    sampled, letter by letter, and yet the same call.
    """
    defaults = {name: found for tool in tools for name, found in _defaults(tool["function"])}
    return tuple(_settled(message, defaults) if defaults else message for message in messages)


def _settled(message: Message, defaults: Mapping[str, Mapping[str, Any]]) -> Message:
    if not message.get("tool_calls"):
        return message
    calls = [
        _settled_call(call, defaults.get(call["function"]["name"], {})) for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def _defaults(function: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    properties = function.get("parameters", {}).get("properties")
    if not isinstance(properties, dict):
        return []
    schemas = ((name, schema) for name, schema in properties.items() if isinstance(schema, dict))
    found = {name: schema["default"] for name, schema in schemas if "default" in schema}
    return [(function["name"], found)] if found else []


def _settled_call(call: Mapping[str, Any], defaults: Mapping[str, Any]) -> Mapping[str, Any]:
    name, arguments = _call_essence(call["function"])
    if not defaults or not isinstance(arguments, dict):
        return call
    kept = {key: value for key, value in arguments.items() if not _is_default(key, value, defaults)}
    if len(kept) == len(arguments):
        return call
    return {**call, "function": {"name": name, "arguments": json.dumps(kept, ensure_ascii=False)}}


def _is_default(key: str, value: object, defaults: Mapping[str, Any]) -> bool:
    # As JSON: False is not 0.
    return key in defaults and json.dumps(value, sort_keys=True) == json.dumps(defaults[key], sort_keys=True)


def next_digest(before: bytes, message: Message) -> bytes:
    """The digest after one more message."""
    return _digest(before, canonical_form(message))


def canonical_form(message: Message) -> bytes:
    """What is the same in two messages exactly when they say the same.

    Ids do not count, nor how arguments are printed, nor white space around an assistant's text: what was
    sampled is kept as sampled, so nothing hangs on how a client writes it.
    """
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "".join(part["text"] for part in content)
    calls = message.get("tool_calls") or ()
    if message["role"] == "assistant":
        content = content.strip()
    told = json.dumps([_call_essence(call["function"]) for call in calls], sort_keys=True) if calls else ""
    return f"{message['role']}\0{len(content)}\0{content}\0{told}".encode(errors="surrogatepass")


def _call_essence(function: Mapping[str, Any]) -> list[Any]:
    """Clients may print the arguments anew: compared as values."""
    try:
        return [function["name"], json.loads(function["arguments"])]
    except (ValueError, RecursionError):
        return [function["name"], function["arguments"]]


def _digest(before: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(data, key=before, digest_size=16).digest()
