"""Rendered prompts read back as messages, for scripts that stand in for a model."""

import json
from typing import Any

from ostinato.model.families.base import assistant_message
from ostinato.model.families.hermes import END_RESPONSE, RESPONSE, parse_text
from ostinato.model.template import TOOLS_HEAD, TOOLS_TAIL
from ostinato.model.tokenizer import IM_END, IM_START
from ostinato.types import new_id


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
