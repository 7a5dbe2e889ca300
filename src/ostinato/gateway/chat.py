"""What a chat completion request may say. Checked by hand: the hot path has no room for a schema library."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ostinato.gateway.errors import ApiError, invalid

MODEL = "ostinato"
DEFAULT_MAX_TOKENS = 1024
HOTTEST = 2.0
ROLES = ("system", "user", "assistant", "tool")
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
}
IGNORED = {"user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier"}
"""Fields that cannot change what is sampled."""
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "top_p": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logprobs": (False,),
    "tool_choice": ("auto",),
    "parallel_tool_calls": (True,),
    "response_format": ({"type": "text"},),
    "stop": ([],),
    "modalities": (["text"],),
}
"""Fields that are accepted only with the value that asks for nothing; null always is."""

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A checked request.

    >>> ChatRequest(model="ostinato", messages=({"role": "user", "content": "hi"},)).stream
    False
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Message, ...] = ()
    stream: bool = False
    include_usage: bool = False
    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float = 1.0
    seed: int | None = None


def parse_chat(body: object) -> ChatRequest:
    """Raises ApiError 400 that names the field, 404 for an unknown model."""
    if not isinstance(body, dict):
        raise invalid("the body must be a JSON object")
    _check_fields(body)
    stream = bool(_typed(body, "stream", bool, False))
    options = _typed(body, "stream_options", dict, {})
    return ChatRequest(
        model=_model(body.get("model")),
        messages=_messages(body.get("messages")),
        tools=_tools(_typed(body, "tools", list, [])),
        stream=stream,
        include_usage=options.get("include_usage") is True,
        max_tokens=_max_tokens(body),
        temperature=_temperature(body),
        seed=_seed(body),
    )


def _check_fields(body: Mapping[str, Any]) -> None:
    for field, value in body.items():
        if field in READ or field in IGNORED or value is None:
            continue
        if field not in NEUTRAL:
            raise invalid(f"{field} is not supported", field, code="unsupported_parameter")
        if value not in NEUTRAL[field]:
            allowed = NEUTRAL[field][0]
            raise invalid(f"{field} is only supported as {allowed!r}", field, code="unsupported_parameter")


def _model(model: object) -> str:
    if not isinstance(model, str):
        raise invalid("model must be a string", "model")
    if model != MODEL:
        raise ApiError(
            404, f"unknown model {model[:100]!r}, use {MODEL!r}", code="model_not_found", param="model"
        )
    return model


def _messages(messages: object) -> tuple[Message, ...]:
    if not isinstance(messages, list) or not messages:
        raise invalid("messages must be a list with at least one message", "messages")
    for i, message in enumerate(messages):
        _check_message(message, f"messages[{i}]")
    return tuple(messages)


def _check_message(message: object, where: str) -> None:
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        raise invalid(f"{where} must be an object with role {', '.join(ROLES)}", where)
    content = message.get("content")
    if isinstance(content, list):
        for part in content:
            _check_part(part, f"{where}.content")
    elif not isinstance(content, str) and not (content is None and message["role"] == "assistant"):
        raise invalid(f"{where}.content must be text", f"{where}.content")
    if message.get("tool_calls"):
        _check_calls(message, where)


def _check_part(part: object, where: str) -> None:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise invalid(f"{where} must be text or a list of text parts", where)
    if part["type"] != "text":
        raise invalid(
            f"{where} holds {part['type'][:40]!r}, this model reads only text",
            where,
            code="unsupported_content",
        )
    if not isinstance(part.get("text"), str):
        raise invalid(f"{where}: a text part needs text", where)


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


def _max_tokens(body: Mapping[str, Any]) -> int:
    field = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    value: int = _typed(body, field, int, DEFAULT_MAX_TOKENS)
    if value < 1:
        raise invalid(f"{field} must be at least 1", field)
    return value


def _temperature(body: Mapping[str, Any]) -> float:
    value: float = _typed(body, "temperature", (int, float), 1.0)
    if not 0 <= value <= HOTTEST:
        raise invalid(f"temperature must lie between 0 and {HOTTEST:.0f}", "temperature")
    return float(value)


def _seed(body: Mapping[str, Any]) -> int | None:
    value: int | None = _typed(body, "seed", int, None)
    if value is not None and not 0 <= value < 2**63:
        raise invalid("seed must lie between 0 and 2**63 - 1", "seed")
    return value


def _typed(body: Mapping[str, Any], field: str, kind: type | tuple[type, ...], default: Any) -> Any:
    value = body.get(field)
    if value is None:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        names = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
        raise invalid(f"{field} must be {names}", field)
    return value
