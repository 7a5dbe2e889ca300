"""The check that a sampled tool call fits the tools that the client offered."""

from collections.abc import Mapping, Sequence
from typing import Any

from ostinato.gateway.dialects.request import Message
from ostinato.model.families import ParsedCall

PYTHON_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


def misuse(calls: Sequence[ParsedCall], tools: Sequence[Message]) -> str | None:
    """Return what is wrong with the first call that does not fit its schema; None when all do.

    The check covers names, `required`, the plain `type` of each property and `additionalProperties: false`.
    """
    offered = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in tools}
    for call in calls:
        if call.name not in offered:
            return f"unknown tool {call.name[:40]}"
        wrong = _wrong_arguments(call, offered[call.name])
        if wrong is not None:
            return wrong
    return None


def _wrong_arguments(call: ParsedCall, schema: Mapping[str, Any]) -> str | None:
    properties = schema.get("properties") or {}
    for name in schema.get("required") or ():
        if name not in call.arguments:
            return f"{call.name} without {name}"
    for name, value in call.arguments.items():
        if name not in properties:
            if schema.get("additionalProperties") is False:
                return f"{call.name} with unknown {name[:40]}"
        elif not _fits(value, properties[name]):
            return f"{call.name} with a wrong type of {name}"
    return None


def _fits(value: object, schema: Any) -> bool:
    kind = schema.get("type") if isinstance(schema, dict) else None
    expected = PYTHON_TYPES.get(kind) if isinstance(kind, str) else None
    if expected is None:
        return True
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()  # JSON Schema: a number without a fraction, however it is written
    return isinstance(value, expected) and (kind == "boolean" or not isinstance(value, bool))
