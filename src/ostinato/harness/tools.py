"""The tools as the model sees them (OpenAI function schemas), their hash, and the check of a call."""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from ostinato.harness.errors import InvalidArguments
from ostinato.harness.prompt import SYSTEM

STRING = {"type": "string"}
INTEGER = {"type": "integer"}
BOOLEAN = {"type": "boolean"}
STRINGS = {"type": "array", "items": {"type": "string"}}
PYTHON_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
}


def _tool(name: str, description: str, required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


TOOLS: list[dict[str, Any]] = [
    _tool(
        "read",
        "Read a file. Long files are cut; continue with offset (first line, from 1) and limit.",
        ("path",),
        path=STRING,
        offset=INTEGER,
        limit=INTEGER,
    ),
    _tool(
        "write",
        "Create a file or replace all of its content.",
        ("path", "content"),
        path=STRING,
        content=STRING,
    ),
    _tool(
        "edit",
        "Replace old_string by new_string in a file. old_string must match exactly, whitespace included, "
        "and occur once unless replace_all is true.",
        ("path", "old_string", "new_string"),
        path=STRING,
        old_string=STRING,
        new_string=STRING,
        replace_all=BOOLEAN,
    ),
    _tool(
        "bash",
        "Run a shell command in the repository root; returns stdout and stderr. Each call is a new shell. "
        "timeout is in seconds.",
        ("command",),
        command=STRING,
        timeout=INTEGER,
    ),
    _tool(
        "grep",
        "Search file contents with an extended regular expression; returns path:line:text. "
        "glob filters file names.",
        ("pattern",),
        pattern=STRING,
        path=STRING,
        glob=STRING,
        limit=INTEGER,
    ),
    _tool("ls", "List a directory of the repository; directories end in a slash.", (), path=STRING),
    _tool(
        "ask_user",
        "Ask the user one question when the repository cannot answer it.",
        ("question",),
        question=STRING,
        options=STRINGS,
    ),
]
HOLDS_ANYTHING = {"content", "old_string", "new_string"}
"""Arguments that may hold a NUL character, since files may."""
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS
}


@cache
def harness_hash() -> str:
    """16 hexadecimal digits that change with any word of the system prompt or the schemas."""
    return hashlib.sha256(json.dumps([SYSTEM, TOOLS], sort_keys=True).encode()).hexdigest()[:16]


def check_arguments(name: str, arguments: Mapping[str, Any]) -> None:
    """Raises InvalidArguments unless the call fits the schema; nothing is guessed or coerced."""
    if name not in PARAMETERS:
        raise InvalidArguments(f"unknown tool {name}, use {' '.join(PARAMETERS)}")
    schema = PARAMETERS[name]
    missing = [key for key in schema["required"] if key not in arguments]
    if missing:
        raise InvalidArguments(f"{name} needs {', '.join(missing)}")
    for key, value in arguments.items():
        if key not in schema["properties"]:
            raise InvalidArguments(f"{name} has no argument {key}, use {' '.join(schema['properties'])}")
        _check_value(name, key, value, schema["properties"][key]["type"])


def _check_value(name: str, key: str, value: object, expected: str) -> None:
    if isinstance(value, str) and not _is_text(key, value):
        raise InvalidArguments(f"{name}: {key} is not text")
    is_bool = isinstance(value, bool)
    if not isinstance(value, PYTHON_TYPES[expected]) or (is_bool and expected != "boolean"):
        raise InvalidArguments(f"{name}: {key} must be {expected}")
    if isinstance(value, list) and not all(isinstance(item, str) and _is_text(key, item) for item in value):
        raise InvalidArguments(f"{name}: {key} must be a list of strings")


def _is_text(key: str, value: str) -> bool:
    """Whether a path or command can be made of it: no half surrogate pairs, no NUL."""
    halved = any("\ud800" <= char <= "\udfff" for char in value) if not value.isascii() else False
    return not halved and (key in HOLDS_ANYTHING or "\0" not in value)
