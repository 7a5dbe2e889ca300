"""The test's own functions and objects that the candidate was given: they stay in the judge.

    alpha(lambda x: x + 1) ──► a stand-in in the worker ──a request for a call──► the judge calls, and answers

The candidate may call, iterate and read what it was given, as it may in any test. It may not set attributes,
nor reach from there to the code, the frames or the names of the test.
"""

import builtins
from collections.abc import Callable, Mapping
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
    TracebackType,
)
from typing import Any

from ostinato.sandbox.exam.judged.records import special
from ostinato.sandbox.exam.judged.values import NotPlainError

_REFUSED = (ModuleType, FrameType, CodeType, TracebackType)
_MACHINERY = ("pytest", "_pytest", "unittest.case", "pluggy")
_CLOSED = (
    FunctionType,
    BuiltinFunctionType,
    MethodType,
    GeneratorType,
    CoroutineType,
    AsyncGeneratorType,
    type,
)
"""Kinds of objects whose attributes lead to code and names."""
SPECIAL = (
    *("__call__", "__iter__", "__next__", "__len__", "__getitem__", "__contains__", "__bool__", "__str__"),
    *("__enter__", "__exit__", "__await__"),
)
"""What a stand-in passes on if the object has it."""
_BUILTIN = {each: name for name, each in vars(builtins).items() if isinstance(each, type)}


class Lender:
    """The judge's side: the objects by number, and the errors that they raised."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._errors: list[BaseException] = []

    def pack(self, value: object) -> Mapping[str, Any]:
        """Return the tag of an object. Raises NotPlainError for one that must stay in the judge."""
        kind = type(value)
        family = value.__mro__ if isinstance(value, type) else kind.__mro__
        if isinstance(value, _REFUSED) or any(each.__module__.startswith(_MACHINERY) for each in family):
            raise NotPlainError(f"a value of type {kind.__name__} cannot be given to the candidate")
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)
        name = str(getattr(value, "__name__", kind.__name__))
        return {"lent": [number, isinstance(value, FunctionType), name, special(kind, SPECIAL)]}

    def lent(self, parts: list[Any]) -> Any:
        return self._objects[parts[0]]

    def use(self, number: int, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return what the object does. Raises what it raises, AttributeError for what is not lent."""
        value = self._objects[number]
        if name == "getattr":
            (wanted,) = args
            if type(wanted) is not str or wanted.startswith("__") or isinstance(value, _CLOSED):
                raise AttributeError(wanted)
            return getattr(value, wanted)
        if name not in SPECIAL:
            raise AttributeError(name)
        found = getattr(type(value), name)(value, *args, **kwargs)
        return _finished(found) if name == "__await__" else found

    def describe(self, error: BaseException, known: type | None) -> list[Any]:
        """Return what `built` makes the error of; `known` is its class if that is the candidate's own.

        A failed assertion has no text there, which could say what the test expects.
        """
        self._errors.append(error)
        base = next(each for each in type(error).__mro__ if each in _BUILTIN)
        plain = str, int, float, bool, type(None)
        said = () if isinstance(error, AssertionError) or not isinstance(error, Exception) else error.args
        args = [each if type(each) in plain else str(each) for each in said]
        return [known or type(error).__name__, _BUILTIN[base], args, len(self._errors) - 1]

    @property
    def errors(self) -> int:
        """How many errors were described."""
        return len(self._errors)

    def again(self, number: int) -> BaseException:
        """Return the error of this number, which the candidate let pass."""
        return self._errors[number]


def _finished(steps: Any) -> Any:
    """Run a coroutine of a test that waits for nothing, such as that of a mock."""
    try:
        next(iter(steps))
    except StopIteration as end:
        return end.value
    raise RuntimeError("a coroutine of the test waits, which it cannot do for the candidate")


Use = Callable[[int, str, tuple[Any, ...], dict[str, Any]], Any]
"""A function that asks the judge to use an object: its number, what for, and the arguments."""


class StandIn:
    """The worker's side of an object, without its special methods: see `Borrower`."""

    def __init__(self, use: Use, number: int) -> None:
        self.__dict__.update(_ostinato_use=use, _ostinato_number=number)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._ostinato_use(self._ostinato_number, "getattr", (name,), {})


def _special(name: str) -> Callable[..., Any]:
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if name == "__exit__":
            args = (None, None, None)
        return self._ostinato_use(self._ostinato_number, name, args, kwargs)

    def awaited(self: Any) -> Any:
        yield from ()
        return self._ostinato_use(self._ostinato_number, "__await__", (), {})

    return awaited if name == "__await__" else method


class Borrower:
    """The worker's side: a stand-in for each object, the same one whenever it comes."""

    def __init__(self, use: Use) -> None:
        self._use = use
        self._stand_ins: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}

    def borrowed(self, parts: list[Any]) -> Any:
        number, is_function, name, names = parts
        if number not in self._stand_ins:
            made = self._function(number, name) if is_function else self._object(number, name, names)
            self._stand_ins[number] = made
            self._numbers[id(made)] = number
        return self._stand_ins[number]

    def _function(self, number: int, name: str) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            return self._use(number, "__call__", args, kwargs)

        function.__name__ = function.__qualname__ = name
        return function

    def _object(self, number: int, name: str, names: list[str]) -> Any:
        made = type(name, (StandIn,), {each: _special(each) for each in names})(self._use, number)
        if "__call__" in names:
            vars(made)["__name__"] = name
        return made

    def pack(self, value: object) -> Mapping[str, Any] | None:
        """Return the tag of a stand-in, None for any other object."""
        number = self._numbers.get(id(value))
        return None if number is None else {"lent": [number]}


def built(parts: list[Any]) -> BaseException:
    """Return an error of the test as the candidate sees it: its own class, or one on a class of Python's."""
    kind, base, args, number = parts
    if isinstance(kind, str):
        own = getattr(builtins, base)
        kind = own if kind == base else type(kind, (own,), {})
    error: BaseException = kind.__new__(kind, *args)
    error.args = tuple(args)
    vars(error)["__ostinato__"] = number
    return error
