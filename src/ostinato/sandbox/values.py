"""Plain data on its way between the judge and the worker: exact types in, exact types out.

A value is None, bool, int, float, str, bytes, or a list, tuple, set or dict of such. A subclass of one of
these is not plain data: an `int` that says it equals everything stays on its own side. The text is JSON;
`decode` builds only the plain types: whatever the worker sends, the judge compares real numbers and strings.
"""

import json
from typing import Any

_SCALARS = (type(None), bool, float, str)
_MAX_JSON_INT = 2**63


class NotPlainError(TypeError):
    """A value that is not plain data, by its type's name."""


def encode(value: object) -> str:
    """JSON text of `value`; raises NotPlainError, RecursionError when nested too deeply."""
    return json.dumps(_pack(value), ensure_ascii=True, separators=(",", ":"))


def decode(text: str) -> Any:
    """The value of `encode`'s text; raises ValueError when it is not such a text."""
    return _unpack(json.loads(text))


def _pack(value: object) -> object:
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is int:
        assert isinstance(value, int)
        return value if -_MAX_JSON_INT < value < _MAX_JSON_INT else {"int": hex(value)}
    if kind is list:
        assert isinstance(value, list)
        return [_pack(item) for item in value]
    return _pack_tagged(kind, value)


def _pack_tagged(kind: type, value: Any) -> object:
    if kind is dict:
        return {"dict": [[_pack(key), _pack(item)] for key, item in value.items()]}
    if kind in (tuple, set, frozenset):
        return {kind.__name__: [_pack(item) for item in value]}
    if kind is bytes:
        return {"bytes": value.hex()}
    raise NotPlainError(f"a value of type {kind.__name__} is not plain data")


def _unpack(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpack(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError("a packed value has exactly one tag")
    ((tag, body),) = value.items()
    return _unpack_tagged(tag, body)


def _unpack_tagged(tag: str, body: Any) -> Any:
    try:
        match tag:
            case "int":
                return int(body, 16)
            case "bytes":
                return bytes.fromhex(body)
            case "dict":
                return {_unpack(key): _unpack(item) for key, item in body}
            case "tuple":
                return tuple(_unpack(item) for item in body)
            case "set":
                return {_unpack(item) for item in body}
            case "frozenset":
                return frozenset(_unpack(item) for item in body)
    except TypeError as error:
        raise ValueError(f"a packed {tag} with a wrong body: {error}") from error
    raise ValueError(f"unknown tag {tag!r}")
