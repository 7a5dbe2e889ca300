"""The transfer of plain data between the judge and the worker: exact types in, exact types out.

A value has one of Python's plain types, or one of the types of the standard library below, and contains such
values. An object of a class that derives from a plain type travels as its base: an `int` that claims to equal
everything arrives as an `int`. The text is JSON, and `decode` builds only the types listed here, so the judge
compares real numbers and strings whatever the worker sends. All other values are passed to `pack_other`.
"""

import builtins
import json
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import PosixPath, PurePosixPath, PureWindowsPath
from types import MappingProxyType, ModuleType
from typing import Any

_SCALARS = (type(None), bool, float, str)
_MAX_JSON_INT = 2**63
_TYPES = {name: each for name, each in vars(builtins).items() if isinstance(each, type)}
_NAMES = {each: name for name, each in _TYPES.items()}


class NotPlainError(TypeError):
    """A value is not plain data; the message has its type's name."""


PackOther = Callable[[Any], Mapping[str, Any]]
"""A function from a value of another type to a tag and parts for `encode`; raises NotPlainError."""
Builders = Mapping[str, Callable[[Any], Any]]
"""A function for each such tag, from the parts to the value; raises ValueError, TypeError."""


def refuse(value: object) -> Mapping[str, Any]:
    """Refuse every value of another type."""
    raise NotPlainError(f"a value of type {type(value).__name__} is not plain data")


def encode(value: object, pack_other: PackOther = refuse) -> str:
    """Return `value` as JSON text. Raises NotPlainError, or RecursionError when it is nested too deeply."""
    return json.dumps(_pack(value, pack_other), ensure_ascii=True, separators=(",", ":"))


def decode(text: str, builders: Builders | None = None) -> Any:
    """Return the value of a text that `encode` made. Raises ValueError for any other text."""
    return _unpack(json.loads(text), builders or {})


def _pack(value: Any, pack_other: PackOther) -> object:
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is int:
        return value if -_MAX_JSON_INT < value < _MAX_JSON_INT else {"int": hex(value)}
    if kind is list:
        return [_pack(item, pack_other) for item in value]
    if kind in _PARTS:
        return {kind.__name__: [_pack(part, pack_other) for part in _PARTS[kind](value)]}
    if kind is type and value in _NAMES:
        return {"type": [_NAMES[value]]}
    return _pack_other_type(value, pack_other)


def _pack_other_type(value: Any, pack_other: PackOther) -> object:
    """Pack a value by `pack_other`, else as the plain type that it derives from.

    Scalars of numpy are packed as Python's.
    """
    numpy: Any = sys.modules.get("numpy")
    if type(numpy) is ModuleType and isinstance(value, numpy.generic):
        scalar = value.item()
        if type(scalar) is not type(value):
            return _pack(scalar, pack_other)
    try:
        ((tag, body),) = pack_other(value).items()
        return {tag: [_pack(part, pack_other) for part in body]}
    except NotPlainError:
        for base, storage in STORAGE.items():
            if isinstance(value, base):
                return _pack(storage(value), pack_other)
        raise


def _offset(zone: tzinfo | None, at: datetime | None) -> object:
    """Return a time zone's offset as a fixed time zone."""
    shift = None if zone is None else zone.utcoffset(at)
    return None if shift is None else timezone(shift)


def _pairs(value: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    return [*value.items()]


_PARTS: Mapping[type, Callable[[Any], Any]] = {
    dict: lambda value: [list(pair) for pair in value.items()],
    tuple: list,
    set: list,
    frozenset: list,
    bytes: lambda value: [value.hex()],
    bytearray: lambda value: [value.hex()],
    complex: lambda value: [value.real, value.imag],
    range: lambda value: [value.start, value.stop, value.step],
    slice: lambda value: [value.start, value.stop, value.step],
    type(Ellipsis): lambda _: [],
    Counter: _pairs,
    OrderedDict: _pairs,
    defaultdict: lambda value: [value.default_factory in _NAMES and value.default_factory, *value.items()],
    deque: lambda value: [value.maxlen, *value],
    Fraction: lambda value: [value.numerator, value.denominator],
    Decimal: lambda value: [str(value)],
    datetime: lambda value: [*_clock(value.date(), value.time()), value.fold, _offset(value.tzinfo, value)],
    date: lambda value: [value.year, value.month, value.day],
    time: lambda value: [*_clock(None, value), value.fold, _offset(value.tzinfo, None)],
    timedelta: lambda value: [value.days, value.seconds, value.microseconds],
    timezone: lambda value: [value.utcoffset(None)],
    PosixPath: lambda value: [str(value)],
    PurePosixPath: lambda value: [str(value)],
    PureWindowsPath: lambda value: [str(value)],
    MappingProxyType: _pairs,
    type({}.keys()): list,
    type({}.items()): list,
}
"""A function for each type, from an object to its parts."""
STORAGE: Mapping[type, Callable[[Any], Any]] = {
    int: int.__index__,
    float: float.__float__,
    str: str.__str__,
    bytes: lambda value: bytes(memoryview(value)),
    list: lambda value: [*list.__iter__(value)],
    dict: lambda value: dict(dict.items(value)),
    tuple: lambda value: (*tuple.__iter__(value),),
    set: lambda value: {*set.__iter__(value)},
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}
"""A function for each type, from an object of a derived class to the plain value that it holds."""


def _clock(day: date | None, at: time) -> list[int]:
    return [*((day.year, day.month, day.day) if day else ()), at.hour, at.minute, at.second, at.microsecond]


def _unpack(value: Any, builders: Builders) -> Any:
    if isinstance(value, list):
        return [_unpack(item, builders) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError("a packed value has exactly one tag")
    ((tag, body),) = value.items()
    if tag == "int":
        return _integer(body)
    build = _BUILD.get(tag) or builders.get(tag)
    if build is None or not isinstance(body, list):
        raise ValueError(f"unknown tag {tag!r}")
    try:
        return build([_unpack(part, builders) for part in body])
    except (TypeError, LookupError, AttributeError, ArithmeticError, InvalidOperation) as error:
        raise ValueError(f"a packed {tag} with a wrong body: {error}") from error


def _integer(digits: object) -> int:
    if not isinstance(digits, str):
        raise ValueError("a packed int is not a string")
    return int(digits, 16)


def _defaults(parts: list[Any]) -> defaultdict[Any, Any]:
    factory, *pairs = parts
    return defaultdict(factory if factory in _NAMES else None, pairs)


def _counter(parts: list[Any]) -> Counter[Any]:
    counter: Counter[Any] = Counter()
    for key, count in parts:
        dict.__setitem__(counter, key, count)
    return counter


def _moment(parts: list[Any]) -> datetime:
    *clock, fold, zone = parts
    return datetime(*clock).replace(tzinfo=zone, fold=fold)


def _time(parts: list[Any]) -> time:
    *clock, fold, zone = parts
    return time(*clock).replace(tzinfo=zone, fold=fold)


_BUILD: Mapping[str, Callable[[list[Any]], Any]] = {
    "dict": dict,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "bytes": lambda parts: bytes.fromhex(*parts),
    "bytearray": lambda parts: bytearray.fromhex(*parts),
    "complex": lambda parts: complex(*parts),
    "range": lambda parts: range(*parts),
    "slice": lambda parts: slice(*parts),
    "ellipsis": lambda parts: Ellipsis,
    "type": lambda parts: _TYPES[parts[0]],
    "Counter": _counter,
    "OrderedDict": OrderedDict,
    "defaultdict": _defaults,
    "deque": lambda parts: deque(parts[1:], parts[0]),
    "Fraction": lambda parts: Fraction(*parts),
    "Decimal": lambda parts: Decimal(*parts),
    "datetime": _moment,
    "date": lambda parts: date(*parts),
    "time": _time,
    "timedelta": lambda parts: timedelta(*parts),
    "timezone": lambda parts: timezone(*parts),
    "PosixPath": lambda parts: PosixPath(*parts),
    "PurePosixPath": lambda parts: PurePosixPath(*parts),
    "PureWindowsPath": lambda parts: PureWindowsPath(*parts),
    "mappingproxy": lambda parts: MappingProxyType(dict(parts)),
    "dict_keys": lambda parts: dict.fromkeys(parts).keys(),
    "dict_items": lambda parts: dict(parts).items(),
}
"""A function for each tag, which is the type's name, from the parts to the object."""
