"""Requests and completions as the JSON that gateway and engine exchange.

`*_to_json` returns a dict for any JSON encoder; `*_from_json` reads such a dict, or its text, and raises
ValueError naming the field that is wrong. Unknown fields are ignored, so that either side may add some.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import orjson

from ostinato.types import (
    Abilities,
    Completion,
    Distribution,
    FinishReason,
    GenerateRequest,
    Sampling,
    Structure,
    StructureKind,
)

INT32 = range(-(2**31), 2**31)


def request_to_json(request: GenerateRequest) -> dict[str, Any]:
    values = {name: getattr(request, name) for name in REQUEST}
    return values | {
        "prompt_ids": list(request.prompt_ids),
        "stop_ids": list(request.stop_ids),
        "sampling": sampling_to_json(request.sampling),
    }


def sampling_to_json(sampling: Sampling) -> dict[str, Any]:
    structure = sampling.structure
    text = None if structure is None else {"kind": structure.kind.value, "text": structure.text}
    return {name: getattr(sampling, name) for name in SAMPLING} | {"structure": text}


def request_from_json(data: Mapping[str, Any] | str | bytes) -> GenerateRequest:
    return GenerateRequest(**_fields(data, REQUEST))


def completion_to_json(completion: Completion) -> dict[str, Any]:
    routes = completion.routes
    return {
        "ids": list(completion.ids),
        "logprobs": list(completion.logprobs),
        "versions": list(completion.versions),
        "finish": completion.finish.value,
        "distribution": completion.distribution.value,
        "routes": None if routes is None else base64.b64encode(routes).decode(),
    }


def completion_from_json(data: Mapping[str, Any] | str | bytes) -> Completion:
    return Completion(**_fields(data, COMPLETION))


def abilities_to_json(abilities: Abilities) -> dict[str, Any]:
    return {name: getattr(abilities, name) for name in ABILITIES} | {
        "sampling": sorted(abilities.sampling),
        "structures": sorted(abilities.structures),
    }


def abilities_from_json(data: Mapping[str, Any] | str | bytes) -> Abilities:
    return Abilities(**_fields(data, ABILITIES))


REQUIRED: Any = object()
FieldReader = tuple[Callable[[Any], Any], Any]
"""A function that checks a field's value, and the default of the field."""


def _fields(data: Mapping[str, Any] | str | bytes, readers: Mapping[str, FieldReader]) -> dict[str, Any]:
    """Return the fields of a JSON object, each checked by its reader. Raises ValueError naming a bad one."""
    values = orjson.loads(data) if isinstance(data, str | bytes) else data
    if not isinstance(values, Mapping):
        raise ValueError(f"expected a JSON object, got {type(values).__name__}")
    return {name: _field(values, name, *reader) for name, reader in readers.items()}


def _field(values: Mapping[str, Any], name: str, read: Callable[[Any], Any], default: Any) -> Any:
    if name not in values:
        if default is REQUIRED:
            raise ValueError(f"{name}: missing")
        return default
    try:
        return read(values[name])
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


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(f"expected true or false, got {value!r:.80}")
    return value


def _names(value: Any) -> frozenset[str]:
    return frozenset(map(_text, _list(value)))


def _structure(value: Any) -> Structure | None:
    return None if value is None else Structure(**_fields(value, STRUCTURE))


def _sampling(value: Any) -> Sampling:
    """Return the settings. An unknown one is an error here: without it another distribution is sampled."""
    if not isinstance(value, Mapping):
        raise TypeError(f"expected an object, got {value!r:.80}")
    if unknown := sorted(value.keys() - SAMPLING.keys()):
        raise ValueError(f"unknown settings {', '.join(unknown)}")
    return Sampling(**_fields(value, SAMPLING))


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


STRUCTURE: dict[str, FieldReader] = {"kind": (StructureKind, REQUIRED), "text": (_text, "")}
READERS: dict[Any, Callable[[Any], Any]] = {int: _int, float: _float, Structure | None: _structure}
SAMPLING: dict[str, FieldReader] = {
    each.name: (READERS[each.type], each.default) for each in fields(Sampling)
}
REQUEST: dict[str, FieldReader] = {
    "request_id": (_text, REQUIRED),
    "session_id": (_text, REQUIRED),
    "prompt_ids": (_ints, REQUIRED),
    "stop_ids": (_ints, REQUIRED),
    "max_tokens": (_positive, REQUIRED),
    "sampling": (_sampling, Sampling()),
}
ABILITIES: dict[str, FieldReader] = {
    "model": (_text, ""),
    "tokenizer": (_text, ""),
    "context": (_int, 0),
    "sampling": (_names, REQUIRED),
    "structures": (_names, frozenset()),
    "token_ids": (_bool, True),
    "logprobs": (_bool, True),
    "tempered": (_bool, True),
    "routes": (_bool, False),
}
COMPLETION: dict[str, FieldReader] = {
    "ids": (_ints, REQUIRED),
    "logprobs": (_floats, REQUIRED),
    "versions": (_ints, REQUIRED),
    "finish": (FinishReason, REQUIRED),
    "routes": (_routes, None),
    "distribution": (Distribution, Distribution.TEMPERED),
}
