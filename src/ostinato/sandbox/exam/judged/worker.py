"""The worker of an exam, which runs the candidate's code: it imports its modules and calls its functions.

It never sees a test. Its responses are only data to the judge, so code that takes over this process can at
most send wrong values.
"""

import importlib
import os
import random
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ostinato.sandbox.exam.judged import channel, exceptions, in_place, records
from ostinato.sandbox.exam.judged.needed_modules import FOLDER
from ostinato.sandbox.exam.judged.values import STORAGE, NotPlainError

_USES: Mapping[str, Callable[..., Any]] = {
    "await": lambda target: _run(target),  # noqa: PLW0108 - it is defined below
    "iter": iter,
    "next": lambda target: [*_next(target)],
    "len": len,
    "bool": bool,
    "item": lambda target, key: target[key],
    "set": lambda target, key, value: target.__setitem__(key, value),
    "delete": lambda target, key: target.__delitem__(key),
    "reversed": reversed,
    "str": str,
    "repr": repr,
    "setattr": setattr,
    "delattr": delattr,
    "isinstance": lambda target, value: isinstance(value, target),
    "keep": lambda target: Kept(target),  # noqa: PLW0108 - it is defined below
    "enter": lambda target: target.__enter__(),
    "exit": lambda target: target.__exit__(None, None, None),
}
"""The operations that a test can use on the candidate's objects."""


def serve(calls: socket.socket, root: str, variation: int = 0) -> None:
    """Respond to the judge's questions about the modules in `root` until it hangs up."""
    random.seed(variation)
    os.chdir(root)
    folders = [root, os.path.join(root, "src")]  # noqa: PTH118
    sys.path[:0] = folders
    forget(module_names(root), folders)
    handler = QuestionHandler()
    while True:
        try:
            question = channel.receive(calls, builders=handler.builders)
        except channel.ChannelError:
            return
        _reply(calls, handler.respond(question), handler.pack)


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


def _reply(calls: socket.socket, response: dict[str, Any], pack: Callable[[Any], Any]) -> None:
    try:
        channel.send(calls, response, pack)
    except Exception as error:
        channel.send(calls, {"unsent": type(error).__name__})


class QuestionHandler:
    """A handler of questions. It keeps objects that are not plain data; the judge names them by number."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        record_builder = records.RecordBuilder(own=True)
        self.builders = {tag: getattr(record_builder, tag) for tag in records.TAGS}
        self.builders["object"] = lambda parts: self._target(parts[0])

    def pack(self, value: Any) -> Mapping[str, Any]:
        if type(value) is Kept:
            value = value.target
            return {"object": [self._number(value), type(value).__name__]}
        try:
            return records.pack(value)
        except NotPlainError:
            if isinstance(value, tuple(STORAGE)):
                raise
        return {"object": [self._number(value), type(value).__name__]}

    def _number(self, value: Any) -> int:
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)
        return number

    def respond(self, question: dict[str, Any]) -> dict[str, Any]:
        os.environ.update(question.get("environment", {}))
        for name in question.get("unset", ()):
            os.environ.pop(name, None)
        if question.get("use") == "call":
            return self._respond_to_call(question)
        try:
            target = self._target(question)
            if "use" in question:
                return {"value": _USES[question["use"]](target, *question["args"], **question["kwargs"])}
            return {"value": None} if "name" not in question else _show(target)
        except BaseException as error:
            return {"raised": _describe(error)}

    def _respond_to_call(self, question: dict[str, Any]) -> dict[str, Any]:
        """Call the target; without a result, report the arguments that were changed in place."""
        args, kwargs = question["args"], question["kwargs"]
        watched = in_place.Watched(in_place.changeable(args, kwargs), self.pack)
        try:
            value = self._target(question)(*args, **kwargs)
            response = {"value": value}
        except BaseException as error:
            value, response = None, {"raised": _describe(error)}
        if value is None and (changes := _changes(watched)):
            response["changed"] = changes
        return response

    def _target(self, question: dict[str, Any]) -> Any:
        """Return the module or kept object of a question, or the attribute that it names there."""
        number, module = question.get("object"), question.get("module")
        target = importlib.import_module(str(module)) if number is None else self._objects[number]
        for part in str(question.get("name", "")).split("."):
            target = getattr(target, part) if part else target
        return target


class Kept:
    """A wrapper of a value that the judge asks to keep here, even if it is plain data or has a name."""

    def __init__(self, target: Any) -> None:
        self.target = target


def _changes(watched: in_place.Watched) -> list[list[Any]]:
    try:
        return watched.changes()
    except Exception:
        return []  # something was put in that cannot be sent: the judge sees no change, so the test fails


def _show(target: Any) -> dict[str, Any]:
    if isinstance(target, type) and issubclass(target, BaseException):
        return {"kind": exceptions.family(target)}
    return {"callable": True} if callable(target) else {"value": target}


def _describe(error: BaseException) -> dict[str, Any]:
    try:
        return exceptions.describe(error)
    except BaseException:
        return {}


def _run(coroutine: Any) -> Any:
    import asyncio  # imported late, because only a candidate with coroutines needs it

    return asyncio.run(coroutine)


def _next(target: Any) -> Iterator[Any]:
    """Yield the next item of an iterator, nothing at its end."""
    try:
        yield next(target)
    except StopIteration:
        return


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], int(sys.argv[3]))
