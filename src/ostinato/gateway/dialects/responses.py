"""OpenAI's Responses: what a request may say, in the gateway's one form.

Items become messages: an assistant's text and the calls beside it are one turn. Reasoning items are left out,
since this model was never shown any. The gateway keeps no responses: clients send the whole conversation.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ostinato.gateway.dialects.request import (
    ChatRequest,
    Message,
    check_fields,
    check_object,
    function_tool,
    hints_of,
    max_tokens_of,
    merge,
    model_of,
    temperature_of,
    text_of,
    typed,
)
from ostinato.gateway.errors import invalid

READ = {
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "stream",
    "max_output_tokens",
    "temperature",
    "text",
    "prompt_cache_key",
    "metadata",
    "parallel_tool_calls",
    "conversation",
}
IGNORED = {
    "include",
    "store",
    "reasoning",
    "service_tier",
    "user",
    "safety_identifier",
    "prompt_cache_options",
    "prompt_cache_retention",
    "stream_options",
    "client_metadata",
    "context_management",
    "image",
}
"""Hints about reasoning, storing and caching: none changes a token here."""
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "top_p": (1,),
    "top_logprobs": (0,),
    "background": (False,),
    "truncation": ("disabled",),
}
TEXT = {"input_text", "output_text", "text"}
HOSTED = re.compile(r"(web_search|file_search|image_generation|code_interpreter|tool_search)\w*")
"""Tools that the provider would run. They are not offered to the model, which is free not to use them."""
GROUPED = "namespace"
"""Tools whose calls name their group as well, which a prompt cannot express: not offered either."""
SHELL = {
    "type": "object",
    "properties": {
        "command": {"type": "array", "items": {"type": "string"}},
        "workdir": {"type": "string"},
        "timeout_ms": {"type": "integer"},
    },
    "required": ["command"],
}
FREEFORM = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""How a tool that takes plain text is shown to a model that writes JSON."""
SKIPPED = ("reasoning", "compaction", "item_reference")
ROLES = ("user", "assistant", "system", "developer")


def parse_responses(body: object) -> ChatRequest:
    """Raises ApiError 400 that names the field."""
    body = check_object(body)
    check_fields(body, READ, IGNORED, NEUTRAL)
    _check_text(typed(body, "text", dict, {}))
    tools, shapes = _tools(typed(body, "tools", list, []))
    instructions = typed(body, "instructions", str, "")
    system = [{"role": "system", "content": instructions}] if instructions else []
    return ChatRequest(
        model=model_of(body),
        messages=(*system, *_input(body.get("input"))),
        tools=tools if _offered(body.get("tool_choice")) else (),
        stream=bool(typed(body, "stream", bool, False)),
        max_tokens=max_tokens_of(body, "max_output_tokens"),
        temperature=temperature_of(body),
        shapes=shapes,
        hints=_hints(body),
        echo={name: body[name] for name in ("instructions", "tools", "metadata", "text") if body.get(name)},
    )


def _check_text(text: Mapping[str, Any]) -> None:
    kind = text["format"].get("type") if isinstance(text.get("format"), dict) else "text"
    if kind != "text":
        raise invalid("text.format is only supported as text", "text.format", code="unsupported_parameter")


def _offered(choice: object) -> bool:
    if choice not in (None, "auto", "none"):
        raise invalid("tool_choice is only supported as 'auto' or 'none'", "tool_choice")
    return choice != "none"


def _hints(body: Mapping[str, Any]) -> dict[str, str]:
    conversation = body.get("conversation")
    if conversation is not None:
        message = "conversation is not supported: the gateway keeps none, send the whole input"
        raise invalid(message, "conversation", code="unsupported_parameter")
    return hints_of(body, "prompt_cache_key")


def _input(value: object) -> list[Message]:
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise invalid("input must be text or a list with at least one item", "input")
    found: list[Message] = []
    for i, item in enumerate(value):
        message = _item(item, f"input[{i}]")
        if message is not None and found and message["role"] == found[-1]["role"] == "assistant":
            found[-1] = merge(found[-1], message)
        elif message is not None:
            found.append(message)
    if not found:
        raise invalid("input holds nothing that the model can read", "input")
    return found


def _item(item: object, where: str) -> Message | None:
    if not isinstance(item, dict):
        raise invalid(f"{where} must be an object", where)
    kind = item.get("type", "message")
    if kind in SKIPPED:
        return None
    if not isinstance(kind, str) or kind not in ITEMS:
        message = f"{where} has the type {str(kind)[:40]!r}, which this gateway cannot read"
        raise invalid(message, where, code="unsupported_content")
    return ITEMS[kind](item, where)


def _message(item: Mapping[str, Any], where: str) -> Message:
    role = item.get("role")
    if role not in ROLES:
        raise invalid(f"{where} must have the role user, assistant, system or developer", where)
    joint = "" if role == "assistant" else "\n\n"
    text = text_of(item.get("content"), f"{where}.content", TEXT, joint)
    return {"role": "system" if role == "developer" else role, "content": text}


def _said(name: object, arguments: str, item: Mapping[str, Any], where: str) -> Message:
    if not isinstance(name, str):
        raise invalid(f"{where}: a call needs a name", where)
    call = {"id": item.get("call_id"), "type": "function"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [call | {"function": {"name": name, "arguments": arguments}}],
    }


def _function_call(item: Mapping[str, Any], where: str) -> Message:
    arguments = item.get("arguments")
    if not isinstance(arguments, str):
        raise invalid(f"{where}.arguments must be text", f"{where}.arguments")
    return _said(item.get("name"), arguments, item, where)


def _custom_call(item: Mapping[str, Any], where: str) -> Message:
    text = item.get("input")
    if not isinstance(text, str):
        raise invalid(f"{where}.input must be text", f"{where}.input")
    return _said(item.get("name"), json.dumps({"input": text}, ensure_ascii=False), item, where)


def _shell_call(item: Mapping[str, Any], where: str) -> Message:
    action = item.get("action")
    if not isinstance(action, dict):
        raise invalid(f"{where}.action must be an object", f"{where}.action")
    return _said("local_shell", json.dumps(shell_arguments(action), ensure_ascii=False), item, where)


def shell_arguments(action: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `local_shell` that an action was made of."""
    names = {"command": "command", "working_directory": "workdir", "timeout_ms": "timeout_ms"}
    return {ours: action[theirs] for theirs, ours in names.items() if action.get(theirs) is not None}


def _output(item: Mapping[str, Any], where: str) -> Message:
    output = item.get("output")
    text = "" if output is None else text_of(output, f"{where}.output", TEXT, "\n")
    return {"role": "tool", "tool_call_id": item.get("call_id"), "content": text}


ITEMS: Mapping[str, Callable[[Mapping[str, Any], str], Message]] = {
    "message": _message,
    "function_call": _function_call,
    "custom_tool_call": _custom_call,
    "local_shell_call": _shell_call,
    "function_call_output": _output,
    "custom_tool_call_output": _output,
    "local_shell_call_output": _output,
}


def _tools(tools: list[Any]) -> tuple[tuple[Message, ...], dict[str, str]]:
    """What is offered to the model, and the tools that the client knows in another shape."""
    found: list[Message] = []
    shapes: dict[str, str] = {}
    for i, tool in enumerate(tools):
        shown, shape = _tool(tool, f"tools[{i}]")
        found += shown
        if shape is not None:
            shapes[shown[0]["function"]["name"]] = shape
    return tuple(found), shapes


def _tool(tool: Any, where: str) -> tuple[list[Message], str | None]:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if not isinstance(kind, str):
        raise invalid(f"{where} must be an object with a type", where)
    if HOSTED.fullmatch(kind) or kind == GROUPED:
        return [], None
    if kind == "function":
        parameters = tool.get("parameters") or {}
        return [function_tool(tool.get("name"), tool.get("description"), parameters, where)], None
    if kind == "custom":
        return [function_tool(tool.get("name"), tool.get("description"), FREEFORM, where)], "custom"
    if kind == "local_shell":
        told = "Runs a command and returns its output."
        return [function_tool("local_shell", told, SHELL, where)], "local_shell"
    raise invalid(f"{where} has the type {kind[:40]!r}, use function", where, code="unsupported_tool")
