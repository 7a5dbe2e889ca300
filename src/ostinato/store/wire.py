"""Requests and completions as the JSON that gateway and engine exchange.

`*_to_json` returns a dict for any JSON encoder; `*_from_json` reads such a dict, or its text, and raises
ValueError naming the field that is wrong. Unknown fields are ignored, so that either side may add some.
"""

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from ostinato.types import Completion, FinishReason, GenerateRequest

INT32 = range(-(2**31), 2**31)


def request_to_json(request: GenerateRequest) -> dict[str, Any]:
    fields = {name: getattr(request, name) for name in REQUEST}
    return fields | {"prompt_ids": list(request.prompt_ids), "stop_ids": list(request.stop_ids)}


def request_from_json(data: Mapping[str, Any] | str | bytes) -> GenerateRequest:
    return GenerateRequest(**_fields(data, REQUEST))


def completion_to_json(completion: Completion) -> dict[str, Any]:
    routes = completion.routes
    return {
        "ids": list(completion.ids),
        "logprobs": list(completion.logprobs),
        "versions": list(completion.versions),
        "finish": completion.finish.value,
        "routes": None if routes is None else base64.b64encode(routes).decode(),
    }


def completion_from_json(data: Mapping[str, Any] | str | bytes) -> Completion:
    return Completion(**_fields(data, COMPLETION))


REQUIRED: Any = object()
FieldReader = tuple[Callable[[Any], Any], Any]
"""A function that checks a field's value, and the default of the field."""


def _fields(data: Mapping[str, Any] | str | bytes, readers: Mapping[str, FieldReader]) -> dict[str, Any]:
    """Return the fields of a JSON object, each checked by its reader. Raises ValueError naming a bad one."""
    fields = orjson.loads(data) if isinstance(data, str | bytes) else data
    if not isinstance(fields, Mapping):
        raise ValueError(f"expected a JSON object, got {type(fields).__name__}")
    return {name: _field(fields, name, *reader) for name, reader in readers.items()}


def _field(fields: Mapping[str, Any], name: str, read: Callable[[Any], Any], default: Any) -> Any:
    if name not in fields:
        if default is REQUIRED:
            raise ValueError(f"{name}: missing")
        return default
    try:
        return read(fields[name])
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name}: {error}") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {value!r:.80}")
    return value


def _int(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"expected a whole number, got {value!r:.80}")
    return value


def _positive(value: Any) -> int:
    if _int(value) < 1:
        raise ValueError(f"expected at least 1, got {value}")
    return int(value)


def _float(value: Any) -> float:
    if type(value) not in {int, float}:
        raise TypeError(f"expected a number, got {value!r:.80}")
    return float(value)


def _not_negative(value: Any) -> float:
    if not 0 <= _float(value) < math.inf:
        raise ValueError(f"expected a number of at least 0, got {value}")
    return float(value)


def _ints(value: Any) -> tuple[int, ...]:
    numbers = tuple(_list(value))
    if not {int}.issuperset(map(type, numbers)):
        numbers = tuple(map(_int, numbers))  # raises an error that names the value
    if numbers and not (min(numbers) in INT32 and max(numbers) in INT32):
        raise ValueError(f"expected 32-bit numbers, got {max(numbers, key=abs)}")
    return numbers


def _floats(value: Any) -> tuple[float, ...]:
    numbers = _list(value)
    return tuple(numbers) if {float}.issuperset(map(type, numbers)) else tuple(map(_float, numbers))


def _list(value: Any) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"expected a list, got {value!r:.80}")
    return value


def _routes(value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        return base64.b64decode(_text(value), validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error


REQUEST: dict[str, FieldReader] = {
    "request_id": (_text, REQUIRED),
    "session_id": (_text, REQUIRED),
    "prompt_ids": (_ints, REQUIRED),
    "stop_ids": (_ints, REQUIRED),
    "max_tokens": (_positive, REQUIRED),
    "temperature": (_not_negative, 1.0),
    "seed": (_int, 0),
}
COMPLETION: dict[str, FieldReader] = {
    "ids": (_ints, REQUIRED),
    "logprobs": (_floats, REQUIRED),
    "versions": (_ints, REQUIRED),
    "finish": (FinishReason, REQUIRED),
    "routes": (_routes, None),
}
