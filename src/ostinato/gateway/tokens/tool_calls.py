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


def as_declared(calls: Sequence[ParsedCall], tools: Sequence[Message]) -> tuple[ParsedCall, ...]:
    """Return the calls, with the arguments that were written without quotes as the texts that their schemas
    ask for."""
    schemas = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in tools}
    return tuple(call.with_texts(_texts(call, _properties(schemas.get(call.name, {})))) for call in calls)


def _texts(call: ParsedCall, properties: Mapping[str, Any]) -> list[str]:
    """Return the names of the arguments whose schemas ask for a text."""
    kinds = {name: _kinds(schema) for name, schema in properties.items()}
    is_null = [name for name, text in call.texts.items() if text == "null" and "null" in kinds.get(name, ())]
    return [name for name, each in kinds.items() if "string" in each and name not in is_null]


def _kinds(schema: Any) -> set[str]:
    """Return the types that a schema names itself or in its alternatives."""
    if not isinstance(schema, dict):
        return set()
    own, others = schema.get("type"), [schema.get("anyOf"), schema.get("oneOf")]
    named = {each for each in (own if isinstance(own, list) else [own]) if isinstance(each, str)}
    return named.union(*(_kinds(each) for part in others if isinstance(part, list) for each in part))


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


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
    # A schema is the client's: a part that is no JSON Schema asks for nothing.
    properties, required = _properties(schema), schema.get("required")
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and name not in call.arguments:
            return f"{call.name} without {name[:40]}"
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
