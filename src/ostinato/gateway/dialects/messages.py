"""Anthropic's Messages: what a request may say, in the gateway's one form.

Blocks become messages: text stays text, `tool_use` a call of the assistant, each `tool_result` a tool
message. Thinking is left out, since this model was never shown any.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from ostinato.gateway.dialects.request import (
    ChatRequest,
    Message,
    check_fields,
    check_object,
    function_tool,
    items,
    max_tokens_of,
    merge,
    model_of,
    part_text,
    stops_of,
    temperature_of,
    text_of,
    typed,
)
from ostinato.gateway.errors import invalid

READ = {
    "model",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "stream",
    "max_tokens",
    "temperature",
    "stop_sequences",
    "metadata",
    "output_config",
}
IGNORED = {
    "thinking",
    "cache_control",
    "betas",
    "service_tier",
    "context_management",
    "container",
    "diagnostics",
    "inference_geo",
    "speed",
    "user_profile_id",
    "workspace_id",
    "billing_policy",
    "fallbacks",
}
"""Hints about thinking, caching, billing, the provider's own context editing: none changes a token here."""
NEUTRAL: Mapping[str, tuple[Any, ...]] = {"top_p": (1,), "top_k": (-1, 0), "mcp_servers": ([],)}
TEXT = {"text"}
ROLES = ("user", "assistant", "system")
SKIPPED = ("thinking", "redacted_thinking")
HOSTED = re.compile(r"(web_search|web_fetch|code_execution|tool_search_tool|mcp_toolset|advisor)\w*")
"""Tools that the provider would run. They are not offered to the model, which is free not to use them."""
ATTRIBUTION = "x-anthropic-billing-header:"
"""Begins a block of Claude Code's system prompt that differs in every request and is no instruction."""
SESSION = re.compile(r"session_([0-9a-fA-F-]{36})$")
JOINT = "\n\n"


def parse_messages(body: object) -> ChatRequest:
    """Raises ApiError 400 that names the field."""
    body = check_object(body)
    check_fields(body, READ, IGNORED, NEUTRAL)
    if body.get("max_tokens") is None:
        raise invalid("max_tokens is required", "max_tokens")
    return _request(body)


def parse_count(body: object) -> ChatRequest:
    """A request to count tokens: the same, without the need to say how many may be sampled."""
    body = check_object(body)
    check_fields(body, READ, IGNORED, NEUTRAL)
    return _request(body)


def _request(body: Mapping[str, Any]) -> ChatRequest:
    offered = _choose(typed(body, "tool_choice", dict, {}))
    _check_output(typed(body, "output_config", dict, {}))
    return ChatRequest(
        model=model_of(body),
        messages=(*_system(body.get("system")), *_messages(body.get("messages"))),
        tools=_tools(body) if offered else (),
        stream=bool(typed(body, "stream", bool, False)),
        max_tokens=max_tokens_of(body, "max_tokens"),
        temperature=temperature_of(body),
        stop=stops_of(body, "stop_sequences"),
        hints=_hints(typed(body, "metadata", dict, {})),
    )


def _choose(choice: Mapping[str, Any]) -> bool:
    """Whether the tools are offered. A choice that would force a call is refused."""
    kind = choice.get("type", "auto")
    if kind not in ("auto", "none"):
        raise invalid("tool_choice is only supported as 'auto' or 'none'", "tool_choice")
    return bool(kind == "auto")


def _check_output(config: Mapping[str, Any]) -> None:
    if config.get("format") is not None:
        field = "output_config.format"
        raise invalid(f"{field} is not supported", field, code="unsupported_parameter")


def _hints(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The session that Claude Code hides at the end of `user_id`, or in the JSON it holds."""
    user = metadata.get("user_id")
    if not isinstance(user, str):
        return {}
    if found := SESSION.search(user):
        return {"metadata.user_id": found[1]}
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
    found: list[Message] = []
    for i, message in enumerate(messages):
        found += _message(message, f"messages[{i}]")
    if not found:
        raise invalid("messages hold nothing that the model can read", "messages")
    if found[-1]["role"] == "assistant":
        raise invalid("a prefilled answer is not supported: messages must end with the user", "messages")
    return _merged(found)


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
        return [_assistant(blocks)]
    return _heard(message["role"], blocks)


def _assistant(blocks: list[tuple[Any, str]]) -> Message:
    text, calls = "", []
    for block, where in blocks:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_use":
            calls.append(_call(block, where))
        elif kind not in SKIPPED:
            text += part_text(block, where, TEXT)
    return {"role": "assistant", "content": text or None} | ({"tool_calls": calls} if calls else {})


def _call(block: Mapping[str, Any], where: str) -> Message:
    name, value = block.get("name"), block.get("input")
    if not isinstance(name, str) or not isinstance(value, dict):
        raise invalid(f"{where}: a tool_use needs a name and an input object", where)
    arguments = json.dumps(value, ensure_ascii=False)
    return {"id": block.get("id"), "type": "function", "function": {"name": name, "arguments": arguments}}


def _heard(role: str, blocks: list[tuple[Any, str]]) -> list[Message]:
    """Tool results one by one; neighbouring texts as one message."""
    found: list[dict[str, Any]] = []
    for block, where in blocks:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            found.append(_result(block, where))
            continue
        text = part_text(block, where, TEXT)
        if found and found[-1]["role"] == role:
            found[-1]["content"] += JOINT + text
        else:
            found.append({"role": role, "content": text})
    return list(found)


def _result(block: Mapping[str, Any], where: str) -> dict[str, Any]:
    content = block.get("content")
    text = "" if content is None else text_of(content, f"{where}.content", TEXT, "\n")
    return {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text}


def _merged(messages: list[Message]) -> list[Message]:
    """Clients may split one answer into several messages: they are one turn."""
    found: list[Message] = []
    for message in messages:
        if found and message["role"] == found[-1]["role"] == "assistant":
            found[-1] = merge(found[-1], message)
        else:
            found.append(message)
    return found


def _tools(body: Mapping[str, Any]) -> tuple[Message, ...]:
    found = items(body, "tools", _tool)
    return tuple(tool for tool in found if tool is not None)


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
