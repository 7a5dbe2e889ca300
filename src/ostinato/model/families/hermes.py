"""The renderer: messages to token ids and back, in the exact text of the Qwen3 (Hermes) chat template.

`render` writes a whole prompt. After a sampled completion, `extend` writes only what follows it, so that a
session is one growing sequence of ids in which the sampled ones are kept as sampled.
`parse` reads a completion. Text from people, files and tools can never turn into a control token.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ostinato.model.families.base import Message, Parsed, ParsedCall, RenderError, strict_json, text_of
from ostinato.model.template import TOOLS_HEAD, TOOLS_TAIL
from ostinato.model.tokenizer import END_OF_TEXT, IM_END, IM_START, SPECIALS, Tokenizer

MOST_CONTROL = 256
"""The number of control texts whose ids are cached: a few fixed ones, and the preambles of harnesses in
use."""
OPEN, CLOSE = "<tool_call>\n", "\n</tool_call>"
ASSISTANT = f"{IM_START}assistant\n"
USER = f"{IM_START}user\n"
RESPONSE, END_RESPONSE = "<tool_response>\n", "\n</tool_response>"


@dataclass(frozen=True, slots=True)
class _Piece:
    """A text to encode; only control pieces may become special tokens."""

    text: str
    control: bool


class HermesRenderer:
    """The Hermes family: ChatML with tool calls as JSON between tags, without reasoning."""

    call_marks = ("<tool_call>",)
    think = ("", "")
    opened = False

    def __init__(self, tokenizer: Tokenizer) -> None:
        ids = [tokenizer.id_of(text) for text in SPECIALS]
        if None in ids:
            raise RenderError(f"the tokenizer lacks one of the special tokens {', '.join(SPECIALS)}")
        self.tokenizer = tokenizer
        self._special = {i for i in ids if i is not None}
        stops = [tokenizer.id_of(IM_END), tokenizer.id_of(END_OF_TEXT)]
        self.stop_ids: tuple[int, ...] = tuple(i for i in stops if i is not None)
        self._encode_control = lru_cache(MOST_CONTROL)(lambda text: tuple(tokenizer.encode(text)))

    def render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Return the whole prompt, which ends in the assistant's header."""
        return self._encode([*_preamble(messages, tools), *_body(messages), _Piece(ASSISTANT, True)])

    def extend(self, messages: Sequence[Message], *, stopped: bool = True) -> list[int]:
        """Return the ids after a completion: the new messages and the assistant's header.

        `stopped` tells whether the completion ended in a stop token; if it was cut, the end of the turn is
        added here.
        """
        start = "\n" if stopped else f"{IM_END}\n"
        return self._encode([_Piece(start, True), *_body(messages), _Piece(ASSISTANT, True)])

    def continues(
        self, messages: Sequence[Message], known: int, tools: Sequence[Mapping[str, Any]] = ()
    ) -> bool:
        """Return whether earlier text stays as it is when more messages follow it: always, here."""
        return True

    def parse(self, completion_ids: Sequence[int]) -> Parsed:
        """Read a completion, its stop token included."""
        stopped = bool(completion_ids) and completion_ids[-1] in self.stop_ids
        body = completion_ids[:-1] if stopped else completion_ids
        parsed = parse_text(self.tokenizer.decode(body))
        if not stopped:
            return _broken(parsed, "no end of turn")
        if any(i in self._special for i in body):
            return _broken(parsed, "control token in a message")
        return parsed

    def parse_text(self, text: str) -> Parsed:
        """Read an assistant's text without its stop token."""
        return parse_text(text)

    def say(self, message: Message) -> list[int]:
        """Return the completion with which the model would say `message`, its stop token included."""
        text = "".join(piece.text for piece in _assistant(message))
        encode = self.tokenizer.encode_untrusted if IM_START[:2] in text else self.tokenizer.encode
        return [*encode(text), self.stop_ids[0]]

    def _encode(self, pieces: Sequence[_Piece]) -> list[int]:
        ids: list[int] = []
        for piece in _joined(pieces):
            encode = self._encode_control if piece.control else self.tokenizer.encode_untrusted
            ids += encode(piece.text)
        return ids


def parse_text(text: str) -> Parsed:
    """Read an assistant's text without its stop token."""
    content, tag, rest = text.partition(OPEN)
    if not tag:
        broken = "unopened tool call" if "<tool_call>" in text or "</tool_call>" in text else None
        return Parsed(content=text, tool_calls=(), broken=broken)
    calls: list[ParsedCall] = []
    while True:
        payload, closed, rest = rest.partition(CLOSE)
        if not closed:
            return Parsed(content=text, tool_calls=(), broken="unclosed tool call")
        call = _call(payload)
        if isinstance(call, str):
            return Parsed(content=text, tool_calls=(), broken=call)
        calls.append(call)
        if not rest.strip():
            return Parsed(content=content.removesuffix("\n"), tool_calls=tuple(calls), broken=None)
        gap, tag, rest = rest.partition(OPEN)
        if gap.strip() or not tag:
            return Parsed(content=text, tool_calls=(), broken="text after a tool call")


def skeletons(system: str, tools: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the literals that deserve one token each in a harness with this prompt and these tools."""
    preamble = "".join(piece.text for piece in _preamble([{"role": "system", "content": system}], tools))
    literals = [
        preamble + USER,
        f"{IM_END}\n{ASSISTANT}",
        f"\n{USER}",
        f"\n{USER}{RESPONSE}",
        f"{END_RESPONSE}{IM_END}\n{ASSISTANT}",
    ]
    for tool in tools:
        literals += _call_skeletons(tool)
    return list(dict.fromkeys(literals))


def in_hermes_way(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages for a template that knows no tools: all of it is said in the texts of messages.

    The tools stand in the system message, calls in the assistant's text, results in a person's message.
    """
    made: list[dict[str, Any]] = []
    if tools:
        system = text_of(messages[0]) if messages and messages[0]["role"] == "system" else ""
        made.append({"role": "system", "content": _offer(system, tools)})
    for i, message in enumerate(messages):
        if message["role"] == "tool":
            result = f"{RESPONSE}{text_of(message)}{END_RESPONSE}"
            if i and messages[i - 1]["role"] == "tool":
                made[-1]["content"] += f"\n{result}"
            else:
                made.append({"role": "user", "content": result})
        elif message["role"] == "assistant":
            said = {key: value for key, value in message.items() if key != "tool_calls"}
            made.append({**said, "content": "".join(piece.text for piece in _assistant(message))})
        elif i or message["role"] != "system" or not tools:
            made.append({**message, "content": text_of(message)})
    return made


def _offer(system: str, tools: Sequence[Mapping[str, Any]]) -> str:
    listed = "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in tools)
    return (f"{system}\n\n" if system else "") + TOOLS_HEAD + listed + TOOLS_TAIL


def _call_skeletons(tool: Mapping[str, Any]) -> list[str]:
    function = tool.get("function", tool)
    properties = function.get("parameters", {}).get("properties", {})
    start = f'{OPEN}{{"name": "{function["name"]}", "arguments": {{'
    if not properties:
        return [f"{start}}}}}{CLOSE}"]
    quotes = {name: '"' if schema.get("type") == "string" else "" for name, schema in properties.items()}
    first, *others = quotes
    literals = [f'{start}"{first}": {quotes[first]}']
    literals += [
        f'{quotes[before]}, "{name}": {quotes[name]}' for before, name in zip(quotes, others, strict=False)
    ]
    return [*literals, *(f"{quote}}}}}{CLOSE}" for quote in quotes.values())]


def _preamble(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[_Piece]:
    """Return the system message with the tools, as control text unless a client put control text into it."""
    system = text_of(messages[0]) if messages and messages[0]["role"] == "system" else ""
    text = _offer(system, tools) if tools else system
    if not text:
        return []
    return [_Piece(f"{IM_START}system\n", True), _Piece(text, "<|" not in text), _Piece(f"{IM_END}\n", True)]


def _body(messages: Sequence[Message]) -> list[_Piece]:
    pieces: list[_Piece] = []
    roles = [message["role"] for message in messages]
    for i, message in enumerate(messages):
        if roles[i] == "tool":
            first, last = i == 0 or roles[i - 1] != "tool", roles[i + 1 : i + 2] != ["tool"]
            pieces += _tool_result(message, first=first, last=last)
        elif roles[i] == "assistant":
            pieces += [_Piece(ASSISTANT, True), *_assistant(message), _Piece(f"{IM_END}\n", True)]
        elif roles[i] == "user" or (roles[i] == "system" and i > 0):
            pieces += [_Piece(f"{IM_START}{roles[i]}\n", True), _Piece(text_of(message), False)]
            pieces.append(_Piece(f"{IM_END}\n", True))
        elif roles[i] != "system":
            raise RenderError(f"message {i} has the role {roles[i]!r}: use system, user, assistant or tool")
    return pieces


def _tool_result(message: Message, *, first: bool, last: bool) -> list[_Piece]:
    start = f"{USER}{RESPONSE}" if first else f"\n{RESPONSE}"
    end = f"{END_RESPONSE}{IM_END}\n" if last else END_RESPONSE
    return [_Piece(start, True), _Piece(text_of(message), False), _Piece(end, True)]


def _assistant(message: Message) -> list[_Piece]:
    """Return content and calls as the model would have written them: its own text, so never control text."""
    parts = [text_of(message)] if text_of(message) else []
    for call in message.get("tool_calls") or ():
        function = call.get("function", call)
        arguments = function["arguments"]
        raw = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        name = json.dumps(function["name"], ensure_ascii=False)
        parts.append(f'{OPEN}{{"name": {name}, "arguments": {raw}}}{CLOSE}')
    return [_Piece("\n".join(parts), False)]


def _joined(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Join neighbouring control pieces, so that a skeleton across them is recognised."""
    joined: list[_Piece] = []
    for piece in pieces:
        if joined and joined[-1].control and piece.control:
            joined[-1] = _Piece(joined[-1].text + piece.text, True)
        elif piece.text:
            joined.append(piece)
    return joined


def _call(payload: str) -> ParsedCall | str:
    """Return one call, or the fault in it."""
    try:
        call = strict_json(payload)
    except ValueError:
        return "bad JSON in a tool call"
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return "tool call without a name"
    if not isinstance(call.get("arguments"), dict):
        return "arguments are not an object"
    return ParsedCall(name=call["name"], arguments=call["arguments"], raw=_raw_arguments(payload, call))


def _raw_arguments(payload: str, call: Mapping[str, Any]) -> str:
    head = f'{{"name": "{call["name"]}", "arguments": '
    if payload.startswith(head) and payload.endswith("}"):
        raw = payload[len(head) : -1]
        if _loads(raw) == call["arguments"]:
            return raw
    return json.dumps(call["arguments"], ensure_ascii=False)


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def _broken(parsed: Parsed, fault: str) -> Parsed:
    return Parsed(content=parsed.content, tool_calls=(), broken=fault)
