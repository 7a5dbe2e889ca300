"""The worker of an exam, which runs the candidate's code: it imports its modules and calls its functions.

It never sees a test. Its responses are only data to the judge, so code that takes over this process can at
most send wrong values.
"""

import copy
import importlib
import operator
import os
import random
import socket
import sys
import threading
import warnings
from abc import ABCMeta
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, Protocol

from ostinato.sandbox.exam.judged import channel, exceptions, in_place, records
from ostinato.sandbox.exam.judged.lent import Borrower, built
from ostinato.sandbox.exam.judged.needed_modules import FOLDER
from ostinato.sandbox.exam.judged.values import STORAGE

_OPERATORS = {name: getattr(operator, name) for name in records.OPERATORS}
_USES: Mapping[str, Callable[..., Any]] = {
    "import": lambda target: None,
    "getattr": lambda target, name: _held(getattr(target, name)),
    "setattr": lambda target, name, value: _set(target, name, value),  # noqa: PLW0108
    "delattr": lambda target, name: _delete(target, name),  # noqa: PLW0108
    "fields": lambda target: [_held(each) for each in records.fields(target)],
    "parts": records.parts,
    "content": lambda target: next(
        plain(target) for base, plain in STORAGE.items() if isinstance(target, base)
    ),
    "become": lambda target, content: in_place.become(target, content) and None,
    "exported": lambda target: _exported(target),  # noqa: PLW0108 - it is defined below
    "signature": lambda target: _signature(target),  # noqa: PLW0108
    "dir": dir,
    "iter": iter,
    "next": lambda target: [*_next(target)],
    "len": len,
    "bool": bool,
    "int": int,
    "float": float,
    "item": lambda target, key: target[key],
    "set": lambda target, key, value: target.__setitem__(key, value),
    "delete": lambda target, key: target.__delitem__(key),
    "reversed": reversed,
    "str": str,
    "repr": repr,
    "format": format,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "operate": lambda target, name, other: _OPERATORS[name](target, other),
    "isinstance": lambda target, value: _derives(type(value), target),
    "issubclass": lambda target, value: _derives(value, target),
    "enter": lambda target: target.__enter__(),
    "exit": lambda target, error: target.__exit__(type(error) if error else None, error, None),
    "await": lambda target: _run(target),  # noqa: PLW0108
    "anext": lambda target: _run(_anext(target)),
    "aenter": lambda target: _run(target.__aenter__()),
    "aexit": lambda target, error: _run(target.__aexit__(type(error) if error else None, error, None)),
}
"""The operations that a test can use on the candidate's objects, beside calls."""


def serve(calls: socket.socket, root: str, variation: int = 0) -> None:
    """Respond to the judge's questions about the modules in `root` until it hangs up."""
    random.seed(variation)
    os.chdir(root)
    folders = [root, os.path.join(root, "src")]  # noqa: PTH118
    sys.path[:0] = folders
    forget(module_names(root), folders)
    warnings.simplefilter("always")
    handler = QuestionHandler(calls)
    warnings.showwarning = handler.warn
    while handler.reply():
        pass


def module_names(repo: str) -> list[str]:
    """Return the names of the top-level modules and packages of a repository, those under `src` included.

    The name of a folder with modules but without `__init__.py` ends with FOLDER; a folder with neither is
    left out.
    """
    folders = [folder for folder in (repo, f"{repo}/src") if os.path.isdir(folder)]  # noqa: PTH112
    entries = [entry for folder in folders for entry in os.scandir(folder)]
    names = (_module_name(entry) for entry in entries if entry.name not in ("src", ".git"))
    return sorted({name for name in names if name})


def _module_name(entry: os.DirEntry[str]) -> str | None:
    if not entry.is_dir():
        return entry.name.removesuffix(".py") if entry.name.endswith(".py") else None
    inside = os.listdir(entry.path)  # noqa: PTH208
    if "__init__.py" in inside:
        return entry.name
    return entry.name + FOLDER if any(name.endswith(".py") for name in inside) else None


def forget(names: Iterable[str], folders: Iterable[str]) -> None:
    """Drop loaded modules of these names, so that the next import finds those in `folders`."""
    for top in [name for name in names if name in sys.modules]:
        for name in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
            del sys.modules[name]
    for folder in folders:
        sys.path_importer_cache.pop(folder, None)  # as `invalidate_caches` would, for these folders only


class QuestionHandler:
    """A handler of questions. It keeps objects that are not plain data; the judge names them by number."""

    def __init__(self, calls: socket.socket) -> None:
        self._calls = calls
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._classes: dict[int, list[Any]] = {}
        self._lock = threading.RLock()
        self._asked = 0
        self._warnings: list[dict[str, Any]] = []
        self._borrowed = Borrower(self._use)
        self.builders = {
            "object": lambda parts: self._objects[parts[0]],
            "member": lambda parts: self._member(*parts),
            "loaded": lambda parts: sys.modules[parts[0]],
            "lent": self._borrowed.borrowed,
            "error": built,
        }

    def reply(self) -> bool:
        """Respond to the next question; return False when the judge is gone."""
        try:
            question = channel.receive(self._calls, builders=self.builders)
        except channel.ChannelError:
            return False
        self._respond_to(question)
        return True

    def _respond_to(self, question: dict[str, Any]) -> None:
        self._asked += 1
        response = self.respond(question)
        self._asked -= 1
        if self._warnings:
            response["warnings"], self._warnings = self._warnings, []
        try:
            channel.send(self._calls, response, self.pack)
        except Exception as error:
            channel.send(self._calls, {"unsent": type(error).__name__})

    def _use(self, number: int, use: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Use an object of the test: the judge responds, after further questions if the test has some."""
        with self._lock:
            if not self._asked:
                raise RuntimeError("an object of the test is used while the test does not wait")
            request = {"lent": number, "use": use, "args": [*args], "kwargs": kwargs}
            channel.send(self._calls, request, self.pack)
            while True:
                message = channel.receive(self._calls, builders=self.builders)
                if "error" in message:
                    raise message["error"]
                if "answer" in message:
                    return message["answer"]
                self._respond_to(message)

    def warn(self, message: Any, *_: Any, **__: Any) -> None:
        """Keep a warning for the response, as `warnings.showwarning`."""
        if isinstance(message, Warning) and len(self._warnings) < _MANY_WARNINGS:
            self._warnings.append(_describe(message))

    def pack(self, value: Any) -> Mapping[str, Any]:
        if (lent := self._borrowed.pack(value)) is not None:
            return lent
        if type(value) is Held:
            return {"held": [self._number(value.target), value.target]}
        if isinstance(value, type):
            if issubclass(value, BaseException):
                return {"exception": [self._number(value), exceptions.family(value)]}
            return {"class": self._class(value)}
        description = self._class(type(value))
        return {"instance": [description, self._number(value), records.state(value, description[3])]}

    def _class(self, kind: type) -> list[Any]:
        number = self._number(kind)
        if number not in self._classes:
            self._classes[number] = [number, *records.describe_class(kind)]
        return self._classes[number]

    def _number(self, value: Any) -> int:
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)
        return number

    def _member(self, number: int, name: str | None, value: object) -> Any:
        kind = self._objects[number]
        return kind(value) if name is None or name not in kind.__members__ else kind[name]

    def respond(self, question: dict[str, Any]) -> dict[str, Any]:
        os.environ.update(question.get("environment", {}))
        for name in question.get("unset", ()):
            os.environ.pop(name, None)
        args, kwargs = question["args"], question["kwargs"]
        if question["use"] == "call":
            return self._respond_to_call(question["target"], args, kwargs)
        try:
            module = question.get("module")
            target = question["target"] if module is None else importlib.import_module(str(module))
            return {"value": _USES[question["use"]](target, *args, **kwargs)}
        except BaseException as error:
            return {"raised": _describe(error)}

    def _respond_to_call(self, target: Any, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Call the target; without a result, report the arguments that were changed in place."""
        watched = in_place.Watched(in_place.changeable(args, kwargs), self.pack)
        try:
            value = target(*args, **kwargs)
            response = {"value": value}
        except BaseException as error:
            value, response = None, {"raised": _describe(error)}
        if value is None and (changes := _changes(watched)):
            response["changed"] = changes
        return response


_MANY_WARNINGS = 1000


class Held:
    """A container of an object or a module: the judge keeps it under a number, since a test may change it."""

    def __init__(self, target: Any) -> None:
        self.target = target


def _held(value: Any) -> Any:
    return Held(value) if type(value) in in_place.CONTAINERS else value


_replaced: dict[tuple[int, str], list[Any]] = {}
"""What modules and classes had by a name before a test set it, the last one at the end."""


_HOOKS = ("typing", "collections.abc", "_collections_abc")
"""Modules of Python whose classes say by a hook what derives from them."""


def _derives(kind: type, target: type) -> bool:
    """Return whether a class derives from another, whatever the metaclass or `__class__` of either says.

    A class that was registered, or has the methods of a protocol, counts; a hook of the class's own does not.
    """
    if target in type.mro(kind):
        return True
    hooks = [vars(each).get("__subclasshook__") for each in target.__mro__[:-1]]
    own = any(getattr(each, "__func__", each).__module__ not in _HOOKS for each in hooks if each is not None)
    return type(target) in (ABCMeta, type(Protocol)) and not own and issubclass(kind, target)


def _set(target: Any, name: str, value: Any) -> None:
    if isinstance(target, (ModuleType, type)) and name in vars(target):
        _replaced.setdefault((id(target), name), []).append(vars(target)[name])
    setattr(target, name, value)


def _delete(target: Any, name: str) -> None:
    """Delete what a test has set; what was there before comes back.

    `monkeypatch` and `mock` look into `__dict__`, where they find nothing of a module or a class that stays
    in the worker. So they take what they replace for inherited, and delete instead of putting it back.
    """
    if before := _replaced.get((id(target), name)):
        setattr(target, name, before.pop())
    else:
        delattr(target, name)


def _changes(watched: in_place.Watched) -> list[list[Any]]:
    try:
        return watched.changes()
    except Exception:
        return []  # something was put in that cannot be sent: the judge sees no change, so the test fails


def _describe(error: BaseException) -> dict[str, Any]:
    try:
        return exceptions.describe(error)
    except BaseException:
        return {}


def _exported(module: Any) -> tuple[bool, list[str], list[str]]:
    """Return whether a module lists what it exports, the names, and those that it defines itself."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return True, [*map(str, listed)], []
    public = {name: each for name, each in vars(module).items() if not name.startswith("_")}
    names = [name for name, each in public.items() if not isinstance(each, ModuleType)]
    return (
        False,
        names,
        [name for name in names if getattr(public[name], "__module__", "") == module.__name__],
    )


def _signature(target: Any) -> list[Any]:
    import inspect  # imported late, because few tests ask for it

    found = inspect.signature(target)
    parts: list[Any] = [
        [each.name, int(each.kind), _given(each.default), _given(each.annotation)]
        for each in found.parameters.values()
    ]
    return [*parts, _given(found.return_annotation)]


def _given(value: Any) -> list[Any]:
    import inspect

    return [] if value is inspect.Parameter.empty else [value]


_loops: list[Any] = []


def _run(awaitable: Any) -> Any:
    """Run a coroutine in the loop of all coroutines, so that what belongs to the loop outlives it."""
    import asyncio  # imported late, because only a candidate with coroutines needs it

    if not _loops:
        _loops.append(asyncio.new_event_loop())
    asyncio.set_event_loop(_loops[0])
    return _loops[0].run_until_complete(awaitable)


async def _anext(target: Any) -> list[Any]:
    """Return the next item of an asynchronous iterator, nothing at its end."""
    iterator = target if hasattr(target, "__anext__") else target.__aiter__()
    try:
        return [await iterator.__anext__()]
    except StopAsyncIteration:
        return []


def _next(target: Any) -> Iterator[Any]:
    """Yield the next item of an iterator, nothing at its end."""
    try:
        yield next(target)
    except StopIteration:
        return


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], int(sys.argv[3]))
