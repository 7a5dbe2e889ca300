"""Exceptions on their way from the worker to the judge: the class with all it derives from, and what it
holds.

The worker names Python's own exceptions by identity: a class that is merely called `ValueError` is another.
The judge builds the candidate's classes once, above the same bases, so that `pytest.raises` and `except`
find them. What would end a loop, a task or the tests without an assertion never arrives as itself: see
`_TAME`.
"""

import builtins
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ostinato.sandbox.exam.values import NotPlainError, encode

_OWN = {each: name for name, each in vars(builtins).items() if isinstance(each, type)}
_LONGEST = 1000
_MANY = 100
"""How many bases a class may have, and attributes an exception."""


class RemoteError(Exception):
    """The candidate's code raised what cannot be built here."""


def describe(error: BaseException) -> dict[str, Any]:
    """What the worker tells of an exception: `family`, `message`, `args` and `attributes`, all plain data."""
    held = {name: value for name, value in vars(error).items() if type(name) is str and _plain(value)}
    return {
        "family": family(type(error)),
        "message": _message(error),
        "args": [arg if _plain(arg) else "" for arg in error.args[:_MANY]],
        "attributes": dict([*held.items()][:_MANY]),
    }


def family(kind: type) -> list[dict[str, Any]]:
    """The classes of an exception's: Python's own by `own`, others by where they are and the places of their
    bases in this list; the class itself first."""
    classes = [each for each in kind.__mro__ if each is not object][:_MANY]
    places = {each: number for number, each in enumerate(classes)}
    return [
        {"own": _OWN[each]}
        if each in _OWN
        else {
            "module": each.__module__,
            "name": each.__qualname__,
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
    """An exception that `isinstance`, and so `pytest.raises`, takes for what the candidate raised, while no
    loop, generator or event loop takes it for its end."""

    looks: type[BaseException]

    @property
    def __class__(self) -> type:
        return self.looks

    @__class__.setter
    def __class__(self, kind: type) -> None:
        raise TypeError(f"an exception of the candidate's does not become a {kind.__name__}")


def _tamed(kind: type[BaseException]) -> type[BaseException]:
    base = Exception if issubclass(kind, Exception) else BaseException
    return type(kind.__name__, (_Lookalike, base), {"looks": kind})


_TAME: Mapping[type, type[BaseException]] = {
    **{each: _tamed(each) for each in (StopIteration, StopAsyncIteration, GeneratorExit)},
    KeyboardInterrupt: type("KeyboardInterrupt", (BaseException,), {}),
}
"""`StopIteration` ends `zip(map(f, given), wanted)` and all that was to be asserted in it; a cancellation
ends a task that nobody asks; an interrupt ends the tests. Each arrives as something that only fails."""
_NOT_OURS = ("builtins", "unittest", "bdb", "pdb", "doctest")
"""Modules of the standard library with exceptions that mean something to pytest, and that of `own`."""


class Raised:
    """Builds what `describe` told."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, ...], type[BaseException]] = {}

    def error(self, told: Mapping[str, Any]) -> BaseException:
        """The exception to be raised; a RemoteError for nonsense."""
        try:
            return self._error(told)
        except Exception as error:  # whatever the candidate's process made up
            return RemoteError(f"{told.get('message')} ({error})")

    def _error(self, told: Mapping[str, Any]) -> BaseException:
        kind, args, message = self.kind(told["family"]), told["args"], told["message"]
        error = kind.__new__(kind, *args)
        if kind in _OWN:
            error.__init__(*args)  # type: ignore[misc]
        else:
            error.args = tuple(args)
            error.told = message  # type: ignore[attr-defined]
        if isinstance(error, SystemExit):
            error.code = args[0] if args else None
        elif isinstance(error, StopIteration):
            error.value = args[0] if args else None
        vars(error).update({n: v for n, v in told["attributes"].items() if not n.startswith("_")})
        return error

    def kind(self, family: list[Mapping[str, Any]]) -> type[BaseException]:
        """The class that a family is of. Raises LookupError, TypeError, ValueError for nonsense."""
        built: dict[int, type] = {}
        for number in range(len(family) - 1, -1, -1):
            built[number] = self._built(family[number], built)
        found = built[0]
        if not issubclass(found, BaseException):
            raise TypeError(f"{found} is no exception")
        return found

    def _built(self, each: Mapping[str, Any], built: Mapping[int, type]) -> type:
        if "own" in each:
            own: type = getattr(builtins, each["own"])
            return _TAME.get(own, own)
        module, name = str(each["module"]), str(each["name"])
        found = self._made.get((module, name))
        if found is None and (library := _in_library(module, name)) is not None:
            found = library if issubclass(library, Exception) else _tamed(library)
            self._made[module, name] = found
        if found is None:
            bases = tuple(built[place] for place in each["bases"]) or (object,)
            members = {"__module__": module, "__qualname__": name, "__str__": _told}
            found = self._made[module, name] = type(name.rpartition(".")[2], bases, members)
        return found


def _told(error: Any) -> str:
    """What the candidate's own `__str__` gave; nothing for an error that the judge made itself."""
    return str(vars(error).get("told", " ".join(map(str, error.args))))


def _in_library(module: str, name: str) -> type[BaseException] | None:
    """An exception of the standard library's that a test can name, since something here has imported it."""
    top = module.partition(".")[0]
    found: Any = sys.modules.get(module)
    if top not in sys.stdlib_module_names or top in _NOT_OURS or type(found) is not ModuleType:
        return None
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None
