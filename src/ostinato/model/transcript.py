"""Rendered prompts read back as messages: their text for scripts that stand in for a model, and their tokens
for people and data sets.

In tokens a message begins and ends at control tokens, never at text that only looks like one, so nobody can
write a turn of somebody else into a file and have it taken for one.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ostinato.model.families.base import assistant_message
from ostinato.model.families.hermes import END_RESPONSE, RESPONSE, parse_text
from ostinato.model.template import TOOLS_HEAD, TOOLS_TAIL
from ostinato.model.tokenizer import IM_END, IM_START, Tokenizer
from ostinato.types import new_id

_MARK = re.compile(f"{re.escape(IM_START)}|{re.escape(IM_END)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatBlock:
    """One message of a prompt in ChatML, as it is written.

    >>> ChatBlock(role="user", text="fix it").closed
    True
    """

    role: str
    text: str
    closed: bool = True
    """False for the last one where nothing ends it, as an assistant's header."""


def blocks(tokenizer: Tokenizer, ids: Sequence[int]) -> Iterator[ChatBlock]:
    """Yield the messages of a prompt, or of a part of one, in ChatML."""
    role, content, header = "", "", ""
    is_header = is_open = False
    for text, mark in _pieces(tokenizer, ids):
        if mark == IM_START:
            role, content, header, is_header, is_open = "", "", "", True, True
        elif mark == IM_END:
            if is_open and not is_header:
                yield ChatBlock(role=role, text=content)
            is_open = False
        elif is_header:
            head, newline, rest = (header + text).partition("\n")
            header = head
            if newline:
                role, content, is_header = head, rest, False
        elif is_open:
            content += text
    if is_open and not is_header:
        yield ChatBlock(role=role, text=content, closed=False)


def _pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> Iterator[tuple[str, str | None]]:
    """Yield runs of text, and the marks that control tokens hold."""
    control, plain = tokenizer.control_ids, list[int]()
    for id in ids:
        if id not in control:
            plain.append(id)
            continue
        yield tokenizer.decode(plain), None
        plain = []
        text, at = tokenizer.decode([id]), 0
        for found in _MARK.finditer(text):
            yield text[at : found.start()], None
            yield "", found[0]
            at = found.end()
        yield text[at:], None
    yield tokenizer.decode(plain), None


def messages_of(text: str) -> list[dict[str, Any]]:
    """Return the OpenAI messages of a rendered prompt, without the open assistant header.

    >>> messages_of("<|im_start|>user\\nfix it<|im_end|>\\n<|im_start|>assistant\\n")
    [{'role': 'user', 'content': 'fix it'}]
    """
    messages: list[dict[str, Any]] = []
    calls: list[str] = []
    for block in text.split(IM_START)[1:]:
        role, _, rest = block.partition("\n")
        content, closed, _ = rest.partition(IM_END)
        if not closed:
            break
        if role == "assistant":
            parsed = parse_text(content)
            calls = [new_id() for _ in parsed.tool_calls]
            messages.append(assistant_message(parsed, calls))
        elif content.startswith(RESPONSE):
            results = content.removeprefix(RESPONSE).removesuffix(END_RESPONSE)
            for call, result in zip(calls, results.split(f"{END_RESPONSE}\n{RESPONSE}"), strict=True):
                messages.append({"role": "tool", "tool_call_id": call, "content": result})
        else:
            messages.append({"role": role, "content": content})
    return messages


def tools_of(text: str) -> list[dict[str, Any]]:
    """Return the function tools that a rendered prompt offers, in the client's form.

    >>> tools_of("<|im_start|>user\\nfix it<|im_end|>\\n")
    []
    """
    _, offered, rest = text.partition(TOOLS_HEAD)
    listed, _, _ = rest.partition(TOOLS_TAIL)
    return [json.loads(line) for line in listed.split("\n") if line] if offered else []
