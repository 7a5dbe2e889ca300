"""The descriptions of the candidate's classes and objects, as the worker sends them to the judge.

A class has a shape: `enum`, `record` (a data class), `namedtuple`, the name of the plain type that it derives
from, else `object`. The judge makes an equivalent class of its own (see `references`), whose objects compare
by Python's own rules, never by the candidate's methods.
"""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from ostinato.sandbox.exam.judged.values import STORAGE

ENUMS: Mapping[str, type[enum.Enum]] = {
    each.__name__: each for each in (enum.IntFlag, enum.Flag, enum.IntEnum, enum.StrEnum, enum.Enum)
}
"""The bases of enumerations: the first one that a class derives from counts."""
TEXTS = ("__str__", "__repr__")
SHOWN = ("__name__", "__qualname__", "__module__", "__doc__")
"""The names of a function that are sent with it."""
OPERATORS = (
    *("__add__", "__sub__", "__mul__", "__truediv__", "__floordiv__", "__mod__", "__pow__", "__matmul__"),
    *("__and__", "__or__", "__xor__", "__lt__", "__le__", "__gt__", "__ge__"),
)
"""The operators that the judge passes on between two objects of the candidate."""
SPECIAL = (
    *("__call__", "__iter__", "__reversed__", "__next__", "__len__", "__bool__", "__getitem__"),
    *("__setitem__", "__delitem__", "__int__", "__float__", "__enter__", "__exit__", "__aenter__"),
    *("__aexit__", "__await__", "__aiter__", "__anext__", *OPERATORS),
)
"""The special methods that the judge passes on to objects whose class has them."""
_SCALARS = {type(None), bool, int, float, str}


def describe_class(kind: type) -> list[Any]:
    """Return the module, the name and the shape of a class, and what its shape needs."""
    named = [str(kind.__module__), str(kind.__qualname__)]
    if issubclass(kind, enum.Enum):
        kept = next(name for name, each in ENUMS.items() if issubclass(kind, each))
        members = [[name, member.value] for name, member in kind.__members__.items()]
        return [*named, "enum", [kept, members, _replaced(kind, ENUMS[kept])]]
    if issubclass(kind, tuple) and isinstance(fields := getattr(kind, "_fields", None), tuple):
        return [*named, "namedtuple", [list(fields), _replaced(kind, tuple)]]
    if dataclasses.is_dataclass(kind):
        flags = kind.__dataclass_params__  # type: ignore[attr-defined]
        parts = [[each.name, each.init, each.repr, bool(each.compare)] for each in dataclasses.fields(kind)]
        return [
            *named,
            "record",
            [parts, flags.eq, flags.order, flags.frozen, kind.__hash__ is not None, special(kind)],
        ]
    for base in STORAGE:
        if issubclass(kind, base):
            return [*named, base.__name__, _replaced(kind, base)]
    return [*named, "object", special(kind)]


def special(kind: type, names: Sequence[str] = SPECIAL) -> list[str]:
    """Return the special methods that objects of a class have.

    `__eq__` is among them where the class has one in Python: the judge compares what such objects consist of.
    """
    found: dict[str, Any] = {}
    for each in kind.__mro__[-2::-1]:  # `object` compares by identity, which the judge does itself
        found.update(vars(each))
    equality = ["__eq__"] if isinstance(found.get("__eq__"), FunctionType) else []
    return [name for name in names if found.get(name) is not None] + (equality if names is SPECIAL else [])


def parts(value: Any) -> dict[str, Any]:
    """Return the attributes of an object, those in slots included."""
    slots = [name for each in type(value).__mro__ for name in _names(vars(each).get("__slots__", ()))]
    found = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return {**found, **getattr(value, "__dict__", {})}


def _names(slots: Any) -> list[str]:
    return [slots] if isinstance(slots, str) else [*slots]


def state(value: Any, shape: str) -> Any:
    """Return what an object is sent with: the content, a member's value, a function's names.

    The fields of a data class are sent if all are scalars; else the judge asks for them when a test reads
    them, since records may contain one another.
    """
    match shape:
        case "object":
            functions = FunctionType, BuiltinFunctionType, MethodType
            return [str(getattr(value, name, "")) for name in SHOWN] if isinstance(value, functions) else None
        case "record":
            body = fields(value)
            return body if all(type(each) in _SCALARS for each in body) else None
        case "enum":
            return value.value
        case "namedtuple":
            return [*tuple.__iter__(value)]
    return next(storage(value) for base, storage in STORAGE.items() if isinstance(value, base))


def fields(value: Any) -> list[Any]:
    """Return the values of a data class's fields, in their order."""
    return [getattr(value, each.name, None) for each in dataclasses.fields(value)]


def _replaced(kind: type, base: type) -> list[str]:
    """Return the names of `base` that a derived class has of its own: the judge asks for these."""
    between = kind.__mro__[: kind.__mro__.index(base)]
    own = {name for each in between for name in vars(each) if type(name) is str}
    return sorted(name for name in own if name in TEXTS or (not name.startswith("_") and hasattr(base, name)))
