"""The candidate's classes and objects as hidden tests see them: each use sends a question to the worker.

    Point(1, 2)            ──► a call in the worker ──► an object that stays there, and its reference here
    p == q, sorted([p, q]) ──► the judge's own comparison of the fields of a data class
    p.moved(1), p.norm     ──► a question each

An object equals what its content says by the judge's own rules: the fields of a data class, the items of a
list. An object without content equals only itself: equality is never the candidate's to decide. Content is
asked for again after each question, since any call may have changed it.
"""

import enum
import inspect
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from ostinato.sandbox.exam.judged.records import OPERATORS, SHOWN, SPECIAL


class Asker(Protocol):
    """The worker, as references use it."""

    asked: int
    """The number of questions so far that may have changed an object."""

    def ask(self, use: str, target: object, args: Any = (), kwargs: Any = {}) -> Any: ...  # noqa: B006

    def look(self, use: str, target: object) -> Any:
        """Ask a question that changes nothing."""

    def hold(self, number: int, value: Any) -> None:
        """Remember an object that the test may change in place: the worker hears of it."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The place of an object in the worker, by a tag and its parts."""

    asker: Asker
    tag: str
    parts: tuple[Any, ...]


ASKED = frozenset(
    (*SHOWN, "__dict__", "__annotations__", "__defaults__", "__kwdefaults__", "__version__", "__all__")
)
"""The names with two underscores on each side that are asked for; others are the judge's own."""


def reference_of(value: object) -> Reference | None:
    """Return the reference of a class, object or member of the candidate; None for the judge's own."""
    kind = type(value)
    if issubclass(kind, (RemoteType, RemoteEnumType)):
        return vars(value).get("__ostinato__")
    if issubclass(type(kind), RemoteType):
        try:
            found: Reference | None = object.__getattribute__(value, "_ostinato")
        except AttributeError:
            found = None
        return found
    if issubclass(type(kind), RemoteEnumType):
        owner, names = vars(kind).get("__ostinato__"), vars(value)
        if owner is None or "_value_" not in names:
            return None  # it is only being made
        return Reference(owner.asker, "member", (*owner.parts, names["_name_"], names["_value_"]))
    return None


def required_reference(value: object) -> Reference:
    if (found := reference_of(value)) is None:
        raise AttributeError(f"{type(value).__name__} is no object of the candidate's")
    return found


def ask(target: object, use: str, *args: object) -> Any:
    return required_reference(target).asker.ask(use, target, args)


def attribute(target: object, name: str) -> Any:
    """Return an attribute of the candidate's class or object. Raises AttributeError as the worker does."""
    if name == "__signature__":
        return _signature(ask(target, "signature"))
    if name.startswith("__") and name.endswith("__") and name not in ASKED:
        raise AttributeError(name)
    return ask(target, "getattr", name)


def _signature(parts: list[Any]) -> inspect.Signature:
    *parameters, returned = parts
    empty = inspect.Parameter.empty
    return inspect.Signature(
        [
            inspect.Parameter(
                str(name),
                inspect._ParameterKind(kind),
                default=_first(default, empty),
                annotation=_first(note, empty),
            )
            for name, kind, default, note in parameters
        ],
        return_annotation=_first(returned, empty),
    )


def _first(given: list[Any], missing: Any) -> Any:
    return given[0] if given else missing


class RemoteType(type):
    """The class of a class of the candidate."""

    def __call__(cls, /, *args: object, **kwargs: object) -> Any:
        return required_reference(cls).asker.ask("call", cls, args, kwargs)

    def __getattr__(cls, name: str) -> Any:
        return attribute(cls, name)

    def __setattr__(cls, name: str, value: object) -> None:
        ask(cls, "setattr", name, value)

    def __delattr__(cls, name: str) -> None:
        ask(cls, "delattr", name)

    def __instancecheck__(cls, value: object) -> bool:
        return type.__instancecheck__(cls, value) or (
            reference_of(value) is not None and bool(ask(cls, "isinstance", value))
        )

    def __subclasscheck__(cls, kind: type) -> bool:
        return kind is cls or (reference_of(kind) is not None and bool(ask(cls, "issubclass", kind)))

    def __getitem__(cls, key: object) -> Any:
        return ask(cls, "item", key)

    @property
    def __doc__(cls) -> Any:  # type: ignore[override]
        return attribute(cls, "__doc__") if reference_of(cls) else None

    @property
    def __annotations__(cls) -> Any:  # type: ignore[override]
        return attribute(cls, "__annotations__") if reference_of(cls) else {}


class RemoteEnumType(enum.EnumType):
    """The class of an enumeration of the candidate: members are the judge's, methods are asked for."""

    def __getattr__(cls, name: str) -> Any:
        if name in cls.__dict__.get("_member_map_", ()):
            return cls._member_map_[name]
        return attribute(cls, name)


def _consists_of_the_same(self: Any, other: object) -> Any:
    """Compare the attributes of two objects of one class, whatever the candidate's `__eq__` says of them."""
    if type(other) is not type(self):
        return NotImplemented
    look = required_reference(self).asker.look
    return self is other or bool(look("parts", self) == look("parts", other))


def _operator(name: str) -> Callable[[Any, object], Any]:
    def operate(self: Any, other: object) -> Any:
        """Operate on two objects of the candidate: a plain operand could be what the test expects."""
        if reference_of(other) is None:
            return NotImplemented
        return ask(self, "operate", name, other)

    return operate


class Remote(metaclass=RemoteType):
    """A function or an object of the candidate that is no content to the judge."""

    __slots__ = ("__weakref__", "_ostinato", "_ostinato_shown", "_ostinato_state")

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__" or name.startswith("_ostinato"):
            return object.__getattribute__(self, name)
        if name in SHOWN and (shown := object.__getattribute__(self, "_ostinato_shown")):
            return shown[SHOWN.index(name)]
        if name.startswith("__") and name.endswith("__") and name not in (*ASKED, "__signature__"):
            return object.__getattribute__(self, name)
        return attribute(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        ask(self, "setattr", name, value)

    def __delattr__(self, name: str) -> None:
        ask(self, "delattr", name)

    def __str__(self) -> str:
        return str(ask(self, "str"))

    def __repr__(self) -> str:
        return str(ask(self, "repr"))

    def __format__(self, form: str) -> str:
        return str(ask(self, "format", form))

    def __copy__(self) -> object:
        return ask(self, "copy")

    def __deepcopy__(self, _: object) -> object:
        return ask(self, "deepcopy")


class _Special:
    """The special methods that the judge's class has if the candidate's has them."""

    def __call__(self, /, *args: object, **kwargs: object) -> Any:
        return required_reference(self).asker.ask("call", self, args, kwargs)

    def __int__(self) -> int:
        return int(ask(self, "int"))

    def __float__(self) -> float:
        return float(ask(self, "float"))

    def __iter__(self) -> Iterator[object]:
        return _items(ask(self, "iter"))

    def __reversed__(self) -> Iterator[object]:
        return _items(ask(self, "reversed"))

    def __next__(self) -> object:
        return next(_items(self))

    def __len__(self) -> int:
        return int(ask(self, "len"))

    def __bool__(self) -> bool:
        return bool(ask(self, "bool"))

    def __getitem__(self, key: object) -> object:
        return ask(self, "item", key)

    def __setitem__(self, key: object, value: object) -> None:
        ask(self, "set", key, value)

    def __delitem__(self, key: object) -> None:
        ask(self, "delete", key)

    def __enter__(self) -> object:
        return ask(self, "enter")

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Tell the candidate of an error, which it cannot end: the rest of the test would be left out."""
        ask(self, "exit", error)

    async def __aenter__(self) -> object:
        return ask(self, "aenter")

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        ask(self, "aexit", error)

    def __await__(self) -> Generator[Any, None, Any]:
        yield from ()
        return ask(self, "await")

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> object:
        for item in ask(self, "anext"):
            return item
        raise StopAsyncIteration


SPECIAL_METHODS = {name: each for name, each in vars(_Special).items() if name in SPECIAL}
SPECIAL_METHODS["__eq__"] = _consists_of_the_same
SPECIAL_METHODS |= {name: _operator(name) for name in OPERATORS}
"""The special methods of the judge's classes, by name."""


def _items(iterator: Any) -> Iterator[object]:
    """Yield the items of an iterator of the candidate; only its own end ends the iteration."""
    while item := ask(iterator, "next"):
        yield item[0]


class Record(Remote):
    """An object of a data class of the candidate, which compares by its fields."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name in type(self).__dict__["__dataclass_fields__"]:
            return _fields(self)[name]
        return Remote.__getattribute__(self, name)


def _fields(record: Any) -> dict[str, Any]:
    """Return the fields of a record by name, as they are after the last question."""
    reference = required_reference(record)
    asked, found = object.__getattribute__(record, "_ostinato_state")
    if found is None or asked != reference.asker.asked:
        names = type(record).__dict__["__dataclass_fields__"]
        found = dict(zip(names, reference.asker.look("fields", record), strict=True))
        object.__setattr__(record, "_ostinato_state", (reference.asker.asked, found))
    fields: dict[str, Any] = found
    return fields


def compared(record: Any) -> tuple[Any, ...]:
    found, kinds = _fields(record), type(record).__dict__["__dataclass_fields__"]
    return tuple(found[name] for name, each in kinds.items() if each.compare)


def comparison(name: str) -> Callable[[Any, object], Any]:
    def compare(self: Any, other: object) -> Any:
        if type(other) is not type(self):
            return NotImplemented
        return getattr(tuple, name)(compared(self), compared(other))

    return compare


class Stored(metaclass=RemoteType):
    """An object of a class that derives from a plain type: its content is the judge's, not its methods."""

    def __getattr__(self, name: str) -> Any:
        return attribute(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        ask(self, "setattr", name, value)
