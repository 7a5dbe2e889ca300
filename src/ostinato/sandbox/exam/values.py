"""Plain data on its way between the judge and the worker: exact types in, exact types out.

A value is one of Python's plain types, or of those of the standard library below, with such values in it.
An object of a class that derives from a plain one travels as its base: an `int` that says it equals
everything arrives as an `int`. The text is JSON; `decode` builds only the types that are listed here:
whatever the worker sends, the judge compares real numbers and strings. What more there is, is given to
`odd`.
"""

import builtins
import json
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import PosixPath, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any

_SCALARS = (type(None), bool, float, str)
_MAX_JSON_INT = 2**63
_TYPES = {name: each for name, each in vars(builtins).items() if isinstance(each, type)}
_NAMES = {each: name for name, each in _TYPES.items()}


class NotPlainError(TypeError):
    """A value that is not plain data, by its type's name."""


Odd = Callable[[Any], Mapping[str, Any]]
"""A value that is none of ours to a tag and what `encode` can write; raises NotPlainError."""
Made = Mapping[str, Callable[[Any], Any]]
"""By such a tag: what was written to a value; raises ValueError, TypeError."""


def refuse(value: object) -> Mapping[str, Any]:
    """No value but ours."""
    raise NotPlainError(f"a value of type {type(value).__name__} is not plain data")


def encode(value: object, odd: Odd = refuse) -> str:
    """JSON text of `value`; raises NotPlainError, RecursionError when nested too deeply."""
    return json.dumps(_pack(value, odd), ensure_ascii=True, separators=(",", ":"))


def decode(text: str, made: Made | None = None) -> Any:
    """The value of `encode`'s text; raises ValueError when it is not such a text."""
    return _unpack(json.loads(text), made or {})


def _pack(value: Any, odd: Odd) -> object:
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is int:
        return value if -_MAX_JSON_INT < value < _MAX_JSON_INT else {"int": hex(value)}
    if kind is list:
        return [_pack(item, odd) for item in value]
    if kind in _PARTS:
        return {kind.__name__: [_pack(part, odd) for part in _PARTS[kind](value)]}
    if kind is type and value in _NAMES:
        return {"type": [_NAMES[value]]}
    return _pack_odd(value, odd)


def _pack_odd(value: Any, odd: Odd) -> object:
    """By `odd`, else as what it derives from."""
    try:
        ((tag, body),) = odd(value).items()
        return {tag: [_pack(part, odd) for part in body]}
    except NotPlainError:
        for base, storage in STORAGE.items():
            if isinstance(value, base):
                return _pack(storage(value), odd)
        raise


def _offset(zone: tzinfo | None, at: datetime | None) -> object:
    """Of a time zone, as a fixed one."""
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
"""By type: what an object of it is made of."""
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
"""By type: the plain value that an object of a derived class holds, whatever its class says of itself."""


def _clock(day: date | None, at: time) -> list[int]:
    return [*((day.year, day.month, day.day) if day else ()), at.hour, at.minute, at.second, at.microsecond]


def _unpack(value: Any, made: Made) -> Any:
    if isinstance(value, list):
        return [_unpack(item, made) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError("a packed value has exactly one tag")
    ((tag, body),) = value.items()
    if tag == "int":
        return _integer(body)
    build = _BUILD.get(tag) or made.get(tag)
    if build is None or not isinstance(body, list):
        raise ValueError(f"unknown tag {tag!r}")
    try:
        return build([_unpack(part, made) for part in body])
    except (TypeError, LookupError, AttributeError, ArithmeticError, InvalidOperation) as error:
        raise ValueError(f"a packed {tag} with a wrong body: {error}") from error


def _integer(digits: object) -> int:
    if not isinstance(digits, str):
        raise ValueError("a packed int is not a text")
    return int(digits, 16)


def _defaults(parts: list[Any]) -> defaultdict[Any, Any]:
    factory, *pairs = parts
    return defaultdict(factory if factory in _NAMES else None, pairs)


def _counter(parts: list[Any]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for key, count in parts:
        dict.__setitem__(found, key, count)
    return found


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
"""By tag, which is the type's name: an object from its parts."""
