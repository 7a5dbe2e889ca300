"""The judge's classes and objects of the candidate, from the descriptions that the worker sends.

Each class is made once. Only the judge gives a special name a meaning: what a candidate calls a field or a
method of its own never decides a comparison.
"""

import dataclasses
from collections import namedtuple
from collections.abc import Callable, Mapping
from types import new_class
from typing import Any

from ostinato.sandbox.exam.judged.records import ENUMS, TEXTS
from ostinato.sandbox.exam.judged.references import (
    SPECIAL_METHODS,
    Asker,
    Record,
    Reference,
    Remote,
    RemoteEnumType,
    RemoteType,
    Stored,
    ask,
    attribute,
    compared,
    comparison,
    reference_of,
)
from ostinato.sandbox.exam.judged.values import STORAGE


class _Asked:
    """An attribute that the candidate's class has in place of the plain type's."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, value: object, kind: type) -> Any:
        return attribute(kind if value is None else value, self._name)


def _text(name: str) -> Callable[[Any], str]:
    return lambda self: str(ask(self, name.strip("_")))


_LEFT_OUT = frozenset((*dir(object), "__class_getitem__", "__getnewargs__", "fromkeys")) - {
    "__eq__",
    "__ne__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
    "__str__",
    "__repr__",
}


def _fresh(base: Any, name: str) -> Callable[..., Any]:
    """Return a method of a plain type that first looks what the worker's object contains by now."""
    method = getattr(base, name)

    def fresh(self: Any, /, *args: object, **kwargs: object) -> Any:
        if (reference := reference_of(self)) is not None:
            asked = object.__getattribute__(self, "_ostinato_asked")
            if asked != reference.asker.asked:
                fill(base, self, reference.asker.look("content", self))
                object.__setattr__(self, "_ostinato_asked", reference.asker.asked)
                reference.asker.hold(reference.parts[0], self)
        return method(self, *args, **kwargs)

    return fresh


_CHANGEABLE: Mapping[type, Callable[[Any, Any], None]] = {
    list: lambda value, content: list.__setitem__(value, slice(None), content),
    dict: lambda value, content: (dict.clear(value), dict.update(value, content))[0],
    set: lambda value, content: (set.clear(value), set.update(value, content))[0],
}
_METHODS = {
    base: {
        name: _fresh(base, name)
        for name in dir(base)
        if name not in _LEFT_OUT and callable(getattr(base, name))
    }
    for base in _CHANGEABLE
}


def fill(base: Any, value: Any, content: Any) -> None:
    """Give an object of a class that derives from `base` this content."""
    _CHANGEABLE[base](value, base(content))


def _enum_base(base: type) -> Any:
    members = {"__getattr__": attribute}
    return new_class(
        f"Remote{base.__name__}", (base,), {"metaclass": RemoteEnumType}, lambda ns: ns.update(members)
    )


_ENUM_BASES = {name: _enum_base(base) for name, base in ENUMS.items()}
_PLAIN = {base.__name__: base for base in STORAGE}


class References:
    """The builder of the candidate's classes and objects from the descriptions of `records`."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._classes: dict[int, tuple[str, Any]] = {}
        self._objects: dict[int, Any] = {}

    def kind(self, parts: list[Any]) -> Any:
        """Return the class of a description. Raises LookupError, TypeError, ValueError if it is malformed."""
        return self._class(parts)[1]

    def _class(self, parts: list[Any]) -> tuple[str, Any]:
        number, module, name, shape, details = parts
        if number not in self._classes:
            namespace = {
                "__module__": str(module),
                "__qualname__": str(name),
                "__ostinato__": Reference(self._asker, "object", (int(number),)),
            }
            kind = _made(str(name).rpartition(".")[2], shape, details, namespace)
            self._classes[number] = str(shape), kind
        return self._classes[number]

    def instance(self, parts: list[Any]) -> Any:
        """Return the object of a description: its class, number and state."""
        description, number, state = parts
        shape, kind = self._class(description)
        if shape == "enum":
            return kind(state)
        if number not in self._objects:
            self._objects[number] = value = _instance(shape, kind, state)
            object.__setattr__(value, "_ostinato", Reference(self._asker, "object", (int(number),)))
            if shape in ("object", "record"):
                names = kind.__dict__.get("__dataclass_fields__", ())
                known = None if shape == "object" or state is None else dict(zip(names, state, strict=True))
                object.__setattr__(value, "_ostinato_shown", state if shape == "object" else None)
                object.__setattr__(value, "_ostinato_state", (self._asker.asked, known))
        value = self._objects[number]
        if _PLAIN.get(shape) in _CHANGEABLE:
            fill(_PLAIN[shape], value, state)
            object.__setattr__(value, "_ostinato_asked", self._asker.asked)
            self._asker.hold(int(number), value)
        return _awaited(value) if description[1:3] == ["builtins", "coroutine"] else value


async def _awaited(remote: Any) -> object:
    """Run a coroutine of the candidate in the worker, from beginning to end, when it is awaited here."""
    return ask(remote, "await")


def _instance(shape: str, kind: Any, state: Any) -> Any:
    if shape in ("object", "record"):
        return object.__new__(kind)
    base: Any = tuple if shape == "namedtuple" else _PLAIN[shape]
    return base.__new__(kind) if base in _CHANGEABLE else base.__new__(kind, state)


def _made(name: str, shape: str, details: Any, namespace: dict[str, Any]) -> Any:
    match shape:
        case "object":
            special = {each: SPECIAL_METHODS[each] for each in details}
            if "__eq__" in special:
                special["__hash__"] = lambda self: hash(type(self))  # the same for all that may be equal
            return RemoteType(name, (Remote,), namespace | special | {"__slots__": ()})
        case "record":
            return _record(name, details, namespace)
        case "enum":
            return _enumeration(name, details, namespace)
        case "namedtuple":
            fields, replaced = details
            base: Any = namedtuple(name, [_plain_name(each) for each in fields])  # type: ignore[misc]
            replaced = [*replaced, "_replace", "_make"]
        case _:
            base, replaced = _PLAIN[shape], details  # type: ignore[assignment,misc]
            namespace |= _METHODS.get(base, {})
    own = {each: _text(each) if each in TEXTS else _Asked(each) for each in replaced if not _is_own(each)}
    return RemoteType(name, (Stored, base), namespace | own)


def _is_own(name: object) -> bool:
    """Return True for a name that only the judge may give a meaning."""
    return (
        type(name) is not str or (name.startswith("__") and name not in TEXTS) or name.startswith("_ostinato")
    )


def _plain_name(name: str) -> str:
    """Return the name of a field. Raises ValueError for one that could replace a method of the class."""
    if name.startswith("_") or not name.isidentifier():
        raise ValueError(f"{name!r} is not a name for a field")
    return name


def _record(name: str, details: Any, namespace: dict[str, Any]) -> Any:
    parts, equal, order, frozen, hashable, special = details
    for field, *_ in parts:
        if _is_own(field) or field in TEXTS:
            raise ValueError(f"{field!r} is not a name for a field")
    made = dataclasses.make_dataclass(
        name,
        [
            (str(field), object, dataclasses.field(init=bool(init), repr=bool(shown), compare=bool(compared)))
            for field, init, shown, compared in parts
        ],
        frozen=bool(frozen),
        eq=bool(equal),
        order=bool(order and equal),
    )
    members = {
        each: vars(made)[each] for each in ("__dataclass_fields__", "__dataclass_params__", "__match_args__")
    }
    members |= {each: SPECIAL_METHODS[each] for each in special if each != "__eq__"}
    if equal:
        members["__eq__"] = comparison("__eq__")
        members["__hash__"] = (lambda self: hash(compared(self))) if hashable else None
    if order and equal:
        members |= {each: comparison(each) for each in ("__lt__", "__le__", "__gt__", "__ge__")}
    return RemoteType(name, (Record,), namespace | members | {"__slots__": ()})


def _enumeration(name: str, details: Any, namespace: dict[str, Any]) -> Any:
    base, members, replaced = details
    pairs = [(_plain_name(each), value) for each, value in members]
    made = _ENUM_BASES[base](name, pairs)
    for each, value in namespace.items():
        type.__setattr__(made, each, value)
    for each in TEXTS:
        if each in replaced:
            type.__setattr__(made, each, _text(each))
    return made
