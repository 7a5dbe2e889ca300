"""The items of a Responses input, as messages of the gateway's one form."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from ostinato.gateway.dialects import reasoning
from ostinato.gateway.dialects.request import Message, arguments_text, merge, text_of
from ostinato.gateway.errors import invalid

TEXT = {"input_text", "output_text", "text"}
ELSEWHERE = ("compaction", "item_reference")
"""Items that stand for what another service keeps."""
ROLES = ("user", "assistant", "system", "developer")
SHELL_FIELDS = {"command": "command", "workdir": "working_directory", "timeout_ms": "timeout_ms"}
"""The arguments of `local_shell`, and the fields of an action that hold them."""


def messages_of(value: object) -> list[Message]:
    """Return the messages of `input`. Raise ApiError 400 naming an item that cannot be read."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise invalid("input must be text or a list with at least one item", "input")
    messages: list[Message] = []
    for i, item in enumerate(value):
        message = _item(item, f"input[{i}]")
        if message is not None and messages and message["role"] == messages[-1]["role"] == "assistant":
            messages[-1] = merge(messages[-1], message)
        elif message is not None:
            messages.append(message)
    messages = [message for message in messages if not _only_reasoning(message)]
    if not messages:
        raise invalid("input holds nothing that the model can read", "input")
    return messages


def _only_reasoning(message: Message) -> bool:
    return message["role"] == "assistant" and message["content"] is None and "tool_calls" not in message


def _reasoning(item: Mapping[str, Any], where: str) -> Message:
    return {"role": "assistant", "content": None} | reasoning.in_message(reasoning.of_item(item))


def _item(item: object, where: str) -> Message | None:
    if not isinstance(item, dict):
        raise invalid(f"{where} must be an object", where)
    kind = item.get("type", "message")
    if kind in ELSEWHERE:
        message = f"{where} is {kind}: the gateway keeps none, send the items themselves (`store: false`)"
        raise invalid(message, where, code="unsupported_content")
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


def _assistant_call(name: object, arguments: str, item: Mapping[str, Any], where: str) -> Message:
    if not isinstance(name, str):
        raise invalid(f"{where}: a call needs a name", where)
    function = {"name": name, "arguments": arguments}
    call = {"id": item.get("call_id"), "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _function_call(item: Mapping[str, Any], where: str) -> Message:
    arguments = arguments_text(item.get("arguments"), f"{where}.arguments")
    return _assistant_call(item.get("name"), arguments, item, where)


def _custom_call(item: Mapping[str, Any], where: str) -> Message:
    arguments = json.dumps({"input": _required_text(item, "input", where)}, ensure_ascii=False)
    return _assistant_call(item.get("name"), arguments, item, where)


def _required_text(item: Mapping[str, Any], name: str, where: str) -> str:
    text = item.get(name)
    if not isinstance(text, str):
        raise invalid(f"{where}.{name} must be text", f"{where}.{name}")
    return text


def _shell_call(item: Mapping[str, Any], where: str) -> Message:
    action = item.get("action")
    if not isinstance(action, dict):
        raise invalid(f"{where}.action must be an object", f"{where}.action")
    fields = {ours: action[theirs] for ours, theirs in SHELL_FIELDS.items() if action.get(theirs) is not None}
    return _assistant_call("local_shell", json.dumps(fields, ensure_ascii=False), item, where)


def _output(item: Mapping[str, Any], where: str) -> Message:
    output = item.get("output")
    text = "" if output is None else text_of(output, f"{where}.output", TEXT, "\n")
    return {"role": "tool", "tool_call_id": item.get("call_id"), "content": text}


ITEMS: Mapping[str, Callable[[Mapping[str, Any], str], Message]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _function_call,
    "custom_tool_call": _custom_call,
    "local_shell_call": _shell_call,
    "function_call_output": _output,
    "custom_tool_call_output": _output,
    "local_shell_call_output": _output,
}
