"""The transfer of exceptions from the worker to the judge: the class, its bases and its content.

The worker names Python's own exceptions by identity: a class that is merely called `ValueError` is not
Python's. The judge builds the candidate's classes once, on the same bases, so that `pytest.raises` and
`except` match them. An exception that would end a loop, a task or the tests without an assertion never
arrives as itself: see `_TAMED`.
"""

import builtins
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ostinato.sandbox.exam.judged.values import NotPlainError, encode

_OWN = {each: name for name, each in vars(builtins).items() if isinstance(each, type)}
_LONGEST = 1000
_MANY = 100
"""Limit for the bases of a class, and for the attributes of an exception."""


class RemoteError(Exception):
    """The candidate's code raised an exception that cannot be built in the judge."""


def describe(error: BaseException) -> dict[str, Any]:
    """Describe an exception by `family`, `message`, `args` and `attributes`, all plain data.

    One that a function of the test raised is described by the number that it has in the judge.
    """
    if type(again := vars(error).get("__ostinato__")) is int:
        return {"again": again}
    attributes = {name: value for name, value in vars(error).items() if type(name) is str and _plain(value)}
    return {
        "family": family(type(error)),
        "message": _message(error),
        "args": [arg if _plain(arg) else "" for arg in error.args[:_MANY]],
        "attributes": dict([*attributes.items()][:_MANY]),
    }


def family(kind: type) -> list[dict[str, Any]]:
    """Describe an exception class and all its bases, the class itself first.

    Python's own classes have `own`, others `module` and `name`, and the positions of their bases in this
    list.
    """
    classes = [each for each in kind.__mro__ if each is not object][:_MANY]
    places = {each: number for number, each in enumerate(classes)}
    return [
        {"own": _OWN[each]}
        if each in _OWN
        else {
            "module": each.__module__,
            "name": each.__qualname__,
            "library": _in_library(str(each.__module__), str(each.__qualname__)) is each,
            "bases": [places[base] for base in each.__bases__ if base in places],
        }
        for each in classes
    ]


def _plain(value: object) -> bool:
    try:
        return len(encode(value)) < _LONGEST
    except (NotPlainError, RecursionError, ValueError):
        return False


def _message(error: BaseException) -> str:
    try:
        return str(error)[:_LONGEST]
    except BaseException:
        return "the error could not be written"


class _Lookalike:
    """A substitute for an exception that would end a loop, a generator or an event loop.

    `isinstance`, and so `pytest.raises`, takes it for the class that the candidate raised; the interpreter
    does not.
    """

    looks: type[BaseException]

    @property
    def __class__(self) -> type:
        return self.looks

    @__class__.setter
    def __class__(self, kind: type) -> None:
        raise TypeError(f"an exception of the candidate's cannot become a {kind.__name__}")


def _tame(kind: type[BaseException]) -> type[BaseException]:
    base = Exception if issubclass(kind, Exception) else BaseException
    return type(kind.__name__, (_Lookalike, base), {"looks": kind})


_TAMED: Mapping[type, type[BaseException]] = {
    **{each: _tame(each) for each in (StopIteration, StopAsyncIteration, GeneratorExit)},
    KeyboardInterrupt: type("KeyboardInterrupt", (BaseException,), {}),
}
"""The substitutes for exceptions that could make a test pass: `StopIteration` would end `zip(map(f, given),
wanted)` and the assertions on it, a cancellation a task that is not awaited, an interrupt all tests. The
substitutes only fail."""
_NOT_OURS = ("builtins", "unittest", "bdb", "pdb", "doctest")
"""Modules whose exceptions have a meaning for pytest, and the module of the `own` classes."""


class ExceptionBuilder:
    """A builder of exceptions from the descriptions that `describe` makes."""

    def __init__(self) -> None:
        self._classes: dict[tuple[str, ...], type[BaseException]] = {}
        self._numbers: dict[type, int] = {}

    def error(self, description: Mapping[str, Any]) -> BaseException:
        """Return the exception to raise; a RemoteError for a malformed description."""
        try:
            return self._error(description)
        except Exception as error:  # the candidate's process may send anything
            return RemoteError(f"{description.get('message')} ({error})")

    def _error(self, description: Mapping[str, Any]) -> BaseException:
        kind, args, message = self.kind(description["family"]), description["args"], description["message"]
        error = kind.__new__(kind, *args)
        if kind in _OWN:
            error.__init__(*args)  # type: ignore[misc]
        else:
            error.args = tuple(args)
            error.message_text = message  # type: ignore[attr-defined]
        if isinstance(error, SystemExit):
            error.code = args[0] if args else None
        elif isinstance(error, StopIteration):
            error.value = args[0] if args else None
        vars(error).update({n: v for n, v in description["attributes"].items() if not n.startswith("_")})
        return error

    def number(self, kind: type) -> int | None:
        """Return the number that the worker gave a class of the candidate."""
        return self._numbers.get(kind)

    @staticmethod
    def tamed(error: BaseException) -> BaseException:
        """Return an error of the test's own as it is, unless it would end a loop of the test."""
        kind = next((tame for each, tame in _TAMED.items() if isinstance(error, each)), None)
        return error if kind is None else kind(*error.args)

    def kind(self, family: list[Mapping[str, Any]], number: int | None = None) -> type[BaseException]:
        """Return the class of a family. Raises LookupError, TypeError, ValueError if it is malformed."""
        built: dict[int, type] = {}
        for place in range(len(family) - 1, -1, -1):
            built[place] = self._build(family[place], built)
        kind = built[0]
        if not issubclass(kind, BaseException):
            raise TypeError(f"{kind} is not an exception")
        if number is not None and "own" not in family[0]:
            self._numbers[kind] = int(number)
        return kind

    def _build(self, each: Mapping[str, Any], built: Mapping[int, type]) -> type:
        if "own" in each:
            own: type = getattr(builtins, each["own"])
            return _TAMED.get(own, own)
        module, name = str(each["module"]), str(each["name"])
        kind = self._classes.get((module, name))
        if kind is None and each.get("library") and (library := _in_library(module, name)) is not None:
            kind = library if issubclass(library, Exception) else _tame(library)
            self._classes[module, name] = kind
        if kind is None:
            bases = tuple(built[place] for place in each["bases"]) or (object,)
            members = {"__module__": module, "__qualname__": name, "__str__": _message_text}
            kind = self._classes[module, name] = type(name.rpartition(".")[2], bases, members)
        return kind


def _message_text(error: Any) -> str:
    """Return the text of the candidate's own `__str__`, or the arguments of an error of the judge."""
    return str(vars(error).get("message_text", " ".join(map(str, error.args))))


def _in_library(module: str, name: str) -> type[BaseException] | None:
    """Return an exception of the standard library if its module is loaded, so that a test can name it."""
    top = module.partition(".")[0]
    value: Any = sys.modules.get(module)
    if top not in sys.stdlib_module_names or top in _NOT_OURS or type(value) is not ModuleType:
        return None
    for part in name.split("."):
        value = getattr(value, part, None)
    return value if isinstance(value, type) and issubclass(value, BaseException) else None
