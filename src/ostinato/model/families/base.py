"""The protocol of a renderer, and what a parsed completion is."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from ostinato.model.tokenizer import Tokenizer

Message = Mapping[str, Any]
"""An OpenAI chat message: role, content (text or text parts), tool_calls, reasoning_content."""


class RenderError(ValueError):
    """A message that the template cannot express, or a checkpoint whose template cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCall:
    """One tool call; `raw` is the JSON text of the arguments exactly as sampled.

    >>> ParsedCall(name="read", arguments={"path": "calc.py"}, raw='{"path": "calc.py"}').name
    'read'
    """

    name: str
    arguments: dict[str, Any]
    raw: str
    texts: Mapping[str, str] = field(default_factory=dict)
    """The texts of arguments that a family writes without quotes: `1` may be a number or a text, which only
    the tool's schema says. `arguments` has what they are as JSON."""

    def with_texts(self, names: Collection[str]) -> Self:
        """Return the call with the texts themselves as these arguments."""
        if not (kept := {name: text for name, text in self.texts.items() if name in names}):
            return self
        arguments = self.arguments | kept
        return replace(self, arguments=arguments, raw=json.dumps(arguments, ensure_ascii=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A parsed completion. `broken` names the fault in a few words; it is None without a fault.

    >>> Parsed(content="done", tool_calls=(), broken=None).tool_calls
    ()
    """

    content: str
    tool_calls: tuple[ParsedCall, ...]
    broken: str | None
    reasoning: str = ""
    """The text that the model wrote before its answer, for itself."""


class Renderer(Protocol):
    """The conversion of messages to ids and back with one tokenizer, in one family's format."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the checkpoint."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The ids that end a completion; the first is what ends an assistant's message in a history."""

    @property
    def call_marks(self) -> tuple[str, ...]:
        """The texts with which a tool call may begin."""

    @property
    def think(self) -> tuple[str, str]:
        """The texts around reasoning, both empty where there is none between tags."""

    @property
    def opened(self) -> bool:
        """Whether the assistant's header already begins the reasoning."""

    def render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Return the whole prompt, which ends in the assistant's header."""

    def extend(self, messages: Sequence[Message], *, stopped: bool = True) -> list[int]:
        """Return the ids after a completion: the new messages and the assistant's header.

        `stopped` tells whether the completion ended in a stop token.
        """

    def continues(
        self, messages: Sequence[Message], known: int, tools: Sequence[Mapping[str, Any]] = ()
    ) -> bool:
        """Return whether the template keeps the text of the first `known` messages, an answer the last of
        them, when the others follow, and then writes what `extend` adds.

        Where it does not, as where earlier reasoning is dropped, the history must be rendered anew.
        """

    def parse(self, completion_ids: Sequence[int]) -> Parsed:
        """Read a completion, its stop token included."""

    def parse_text(self, text: str) -> Parsed:
        """Read an assistant's text without its stop token."""

    def say(self, message: Message) -> list[int]:
        """Return the completion with which the model would say `message`, its stop token included."""


def assistant_message(parsed: Parsed, call_ids: Sequence[str] = ()) -> dict[str, Any]:
    """Return the OpenAI message of a parsed completion; its rendering equals the parsed text."""
    message: dict[str, Any] = {"role": "assistant", "content": parsed.content or None}
    if parsed.reasoning:
        message["reasoning_content"] = parsed.reasoning
    names = [*call_ids, *(f"call_{i}" for i in range(len(call_ids), len(parsed.tool_calls)))]
    if parsed.tool_calls:
        message["tool_calls"] = [
            {"id": name, "type": "function", "function": {"name": call.name, "arguments": call.raw}}
            for name, call in zip(names, parsed.tool_calls, strict=False)
        ]
    return message


def _number(digits: str) -> int | float:
    """Return a number; raise ValueError for one that no double holds, as NaN."""
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:20]} is no number that a double holds")
    return value if set(digits) & set(".eE") else int(digits)


_STRICT = json.JSONDecoder(parse_constant=_number, parse_int=_number, parse_float=_number)


def strict_json(text: str) -> Any:
    """Return the value of a JSON text. Raise ValueError for what a strict reader in another language refuses.

    Python's own reader takes NaN, infinities, numbers beyond a double and halves of surrogate pairs.

    >>> strict_json('{"x": 1.0}')
    {'x': 1.0}
    """
    try:
        text.encode()
        value = _STRICT.decode(text)
        if "\\u" in text:  # an escape may stand for a half, which no other reader keeps
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def text_of(message: Message) -> str:
    """Return the text of a message's content. Raise RenderError when it is not all text."""
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    kinds = [part.get("type") for part in content]
    if kinds.count("text") != len(kinds):
        raise RenderError(
            f"a {message['role']} message holds {sorted(set(map(str, kinds)))}: only text is supported"
        )
    return "".join(part["text"] for part in content)
