"""The transfer of named tuples, data classes and enumerations between the judge and the worker.

The worker sends the parts of such an object. The judge does not have its class and makes an equivalent one,
once: its tuples, records and members compare by Python's own rules, never by the candidate's methods. On the
way back the worker finds its own class again.
"""

import dataclasses
import enum
import sys
from collections import namedtuple
from collections.abc import Mapping
from typing import Any

from ostinato.sandbox.exam.judged.values import NotPlainError

_ENUMS: Mapping[str, type[enum.Enum]] = {
    each.__name__: each for each in (enum.IntFlag, enum.Flag, enum.IntEnum, enum.StrEnum, enum.Enum)
}
"""The bases of enumerations: the first one that a class derives from counts."""
TAGS = ("namedtuple", "dataclass", "enum")


def pack(value: Any) -> Mapping[str, Any]:
    """Return a tag and its parts. Raises NotPlainError for an object of another kind."""
    kind = type(value)
    named = [kind.__module__, kind.__qualname__]
    if isinstance(value, tuple) and isinstance(fields := getattr(kind, "_fields", None), tuple):
        return {"namedtuple": [*named, list(fields), list(tuple.__iter__(value))]}
    if isinstance(value, enum.Enum):
        base = next(name for name, each in _ENUMS.items() if isinstance(value, each))
        members = [[name, member.value] for name, member in kind.__members__.items()]
        return {"enum": [*named, base, members, value.value]}
    if dataclasses.is_dataclass(kind):
        flags = kind.__dataclass_params__  # type: ignore[attr-defined]
        fields = [each.name for each in dataclasses.fields(kind)]
        body = [getattr(value, name) for name in fields]
        return {"dataclass": [*named, fields, body, flags.eq, flags.order, flags.frozen]}
    raise NotPlainError(f"a value of type {kind.__name__} is not plain data")


class RecordBuilder:
    """A builder of such objects. With `own` it prefers the loaded classes of the same name."""

    def __init__(self, *, own: bool) -> None:
        self._own = own
        self._classes: dict[object, type] = {}

    def namedtuple(self, parts: list[Any]) -> Any:
        module, name, fields, items = parts
        kind = self._class(("namedtuple", module, name, *fields))
        kind = kind or self._remember(("namedtuple", module, name, *fields), _tuple(name, fields))
        return tuple.__new__(kind, items)

    def dataclass(self, parts: list[Any]) -> Any:
        module, name, fields, body, *flags = parts
        key = ("dataclass", module, name, *fields, *flags)
        kind = self._class(key) or self._remember(key, _record(name, fields, *flags))
        record = object.__new__(kind)
        for field, item in zip(fields, body, strict=True):
            object.__setattr__(record, field, item)
        return record

    def enum(self, parts: list[Any]) -> Any:
        module, name, base, members, value = parts
        key = ("enum", module, name, base, repr(members))
        kind = self._class(key) or self._remember(key, _enumeration(name, base, members))
        return kind(value)

    def _class(self, key: tuple[Any, ...]) -> Any:
        _, module, name, *_ = key
        value: Any = sys.modules.get(module) if self._own else None
        for part in name.split("."):
            value = getattr(value, part, None)
        return value if isinstance(value, type) else self._classes.get(key)

    def _remember(self, key: tuple[Any, ...], kind: type) -> Any:
        _, kind.__module__, kind.__qualname__, *_ = key
        return self._classes.setdefault(key, kind)


def _plain_name(name: str) -> str:
    """Return a field name. Raises ValueError for one that could replace a method of the class."""
    if name.startswith("_") or not name.isidentifier():
        raise ValueError(f"{name!r} is not a name for a field")
    return name


def _tuple(name: str, fields: list[str]) -> type:
    return namedtuple(name.rpartition(".")[2], [_plain_name(each) for each in fields])


def _record(name: str, fields: list[str], eq: bool, order: bool, frozen: bool) -> type:
    names = [_plain_name(each) for each in fields]
    return dataclasses.make_dataclass(
        name.rpartition(".")[2], names, eq=bool(eq), order=bool(order and eq), frozen=bool(frozen)
    )


def _enumeration(name: str, base: str, members: list[list[Any]]) -> type:
    pairs = [(_plain_name(each), value) for each, value in members]
    make: Any = _ENUMS[base]
    made: type = make(name.rpartition(".")[2], pairs)
    return made
