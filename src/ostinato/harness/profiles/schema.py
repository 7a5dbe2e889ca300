"""The check of a call's arguments against a tool's schema. Nothing is guessed or coerced."""

from collections.abc import Mapping
from typing import Any

from ostinato.harness.errors import InvalidArguments

PYTHON_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
HOLDS_ANYTHING = {
    *("content", "old_string", "new_string", "patch"),
    *("oldString", "newString", "oldText", "newText", "patchText", "input"),
}
"""The arguments that may hold a NUL character, since files may."""


def check_arguments(name: str, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Check the arguments; raises InvalidArguments, in few words, unless they fit the schema."""
    missing = [key for key in schema["required"] if key not in arguments]
    if missing:
        raise InvalidArguments(f"{name} needs {', '.join(missing)}")
    for key, value in arguments.items():
        if key not in schema["properties"]:
            raise InvalidArguments(f"{name} has no argument {key}, use {' '.join(schema['properties'])}")
        _check_value(name, key, value, schema["properties"][key])


def _check_value(name: str, key: str, value: object, schema: Mapping[str, Any]) -> None:
    expected = schema["type"]
    if isinstance(value, str) and not _is_text(key, value):
        raise InvalidArguments(f"{name}: {key} is not text")
    is_bool = isinstance(value, bool)
    if not isinstance(value, PYTHON_TYPES[expected]) or (is_bool and expected != "boolean"):
        raise InvalidArguments(f"{name}: {key} must be {expected}")
    if "enum" in schema and value not in schema["enum"]:
        raise InvalidArguments(f"{name}: {key} must be one of {', '.join(schema['enum'])}")
    if isinstance(value, list):
        _check_items(name, key, value, schema["items"])


def _check_items(name: str, key: str, values: list[Any], schema: Mapping[str, Any]) -> None:
    if schema["type"] == "object":
        if not all(isinstance(value, dict) for value in values):
            raise InvalidArguments(f"{name}: {key} must be a list of objects")
        for i, value in enumerate(values):
            check_arguments(f"{name}: {key}[{i}]", value, schema)
    elif not all(isinstance(value, str) and _is_text(key, value) for value in values):
        raise InvalidArguments(f"{name}: {key} must be a list of strings")


def _is_text(key: str, value: str) -> bool:
    """Return whether a path or command can be made of the text: it has no half surrogate pair and no NUL."""
    halved = any("\ud800" <= char <= "\udfff" for char in value) if not value.isascii() else False
    return not halved and (key in HOLDS_ANYTHING or "\0" not in value)
