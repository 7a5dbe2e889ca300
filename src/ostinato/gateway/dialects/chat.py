"""What a chat completion request may say. Checked by hand: the hot path has no room for a schema library."""

from collections.abc import Mapping
from typing import Any

from ostinato.gateway.dialects.request import (
    ChatRequest,
    Message,
    check_fields,
    check_object,
    hints_of,
    max_tokens_of,
    model_of,
    part_text,
    seed_of,
    stops_of,
    temperature_of,
    typed,
)
from ostinato.gateway.errors import invalid

ROLES = ("system", "developer", "user", "assistant", "tool")
READ = {
    "model",
    "messages",
    "tools",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "seed",
    "stop",
    "prompt_cache_key",
}
IGNORED = {
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_options",
    "prompt_cache_retention",
    "parallel_tool_calls",
    "reasoning_effort",
    "verbosity",
    "prediction",
}
"""Fields that cannot change what this model samples: it does not think aloud, and calls as it likes."""
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "top_p": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "tool_choice": ("auto",),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
TEXT = {"text"}


def parse_chat(body: object) -> ChatRequest:
    """Raises ApiError 400 that names the field."""
    body = check_object(body)
    check_fields(body, READ, IGNORED, NEUTRAL)
    options = typed(body, "stream_options", dict, {})
    return ChatRequest(
        model=model_of(body),
        messages=_messages(body.get("messages")),
        tools=_tools(typed(body, "tools", list, [])),
        stream=bool(typed(body, "stream", bool, False)),
        include_usage=options.get("include_usage") is True,
        max_tokens=max_tokens_of(body, "max_completion_tokens", "max_tokens"),
        temperature=temperature_of(body),
        seed=seed_of(body),
        stop=stops_of(body, "stop"),
        hints=hints_of(body, "prompt_cache_key"),
    )


def _messages(messages: object) -> tuple[Message, ...]:
    if not isinstance(messages, list) or not messages:
        raise invalid("messages must be a list with at least one message", "messages")
    return tuple([_message(message, f"messages[{i}]") for i, message in enumerate(messages)])


def _message(message: object, where: str) -> Message:
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        raise invalid(f"{where} must be an object with role {', '.join(ROLES)}", where)
    content = message.get("content")
    if isinstance(content, list):
        for i, part in enumerate(content):
            part_text(part, f"{where}.content[{i}]", TEXT)
    elif not isinstance(content, str) and not (content is None and message["role"] == "assistant"):
        raise invalid(f"{where}.content must be text", f"{where}.content")
    if message.get("tool_calls"):
        _check_calls(message, where)
    return message | {"role": "system"} if message["role"] == "developer" else message


def _check_calls(message: Mapping[str, Any], where: str) -> None:
    if message["role"] != "assistant" or not isinstance(message["tool_calls"], list):
        raise invalid(f"{where}.tool_calls must be a list on an assistant message", f"{where}.tool_calls")
    for call in message["tool_calls"]:
        function = call.get("function") if isinstance(call, dict) else None
        fields = (function.get("name"), function.get("arguments")) if isinstance(function, dict) else (None,)
        if not all(isinstance(field, str) for field in fields):
            raise invalid(
                f"{where}.tool_calls: each needs function.name and function.arguments as strings",
                f"{where}.tool_calls",
            )


def _tools(tools: list[Any]) -> tuple[Message, ...]:
    for i, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise invalid(f"tools[{i}] must be a function tool with a name", f"tools[{i}]")
        if not isinstance(function.get("parameters", {}), dict):
            raise invalid(f"tools[{i}].function.parameters must be an object", f"tools[{i}]")
    return tuple(tools)
