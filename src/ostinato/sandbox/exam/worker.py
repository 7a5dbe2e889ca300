"""The side of an exam that runs the candidate's code: imports its modules, calls its functions.

It never sees a test. Everything it answers is only data to the judge, so code that takes over this process
can at most answer wrongly.
"""

import importlib
import os
import random
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ostinato.sandbox.exam import channel, exceptions, records
from ostinato.sandbox.exam.needed_modules import FOLDER
from ostinato.sandbox.exam.values import STORAGE, NotPlainError

_USES: Mapping[str, Callable[..., Any]] = {
    "call": lambda target, *args, **kwargs: target(*args, **kwargs),
    "await": lambda target: _run(target),  # noqa: PLW0108 - it is defined below
    "iter": iter,
    "next": lambda target: [*_next(target)],
    "len": len,
    "bool": bool,
    "item": lambda target, key: target[key],
    "set": lambda target, key, value: target.__setitem__(key, value),
    "in": lambda target, value: value in target,
    "enter": lambda target: target.__enter__(),
    "exit": lambda target: target.__exit__(None, None, None),
}
"""What a test can do with something of ours."""


def serve(calls: socket.socket, root: str, variation: int = 0) -> None:
    """Answer the judge's questions about the modules in `root` until it hangs up."""
    random.seed(variation)
    os.chdir(root)
    folders = [root, os.path.join(root, "src")]  # noqa: PTH118
    sys.path[:0] = folders
    forget(module_names(root), folders)
    answering = Answering()
    while True:
        try:
            question = channel.receive(calls, made=answering.made)
        except channel.ChannelError:
            return
        _reply(calls, answering.answer(question), answering.pack)


def module_names(repo: str) -> list[str]:
    """Top-level modules and packages of a repository, those under `src` included.

    A folder with modules and without `__init__.py` has FOLDER behind its name; one with neither is none.
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
    """Drop loaded modules of these names: the next import finds those in `folders`."""
    for top in [name for name in names if name in sys.modules]:
        for name in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
            del sys.modules[name]
    for folder in folders:
        sys.path_importer_cache.pop(folder, None)  # all that `invalidate_caches` would do for them


def _reply(calls: socket.socket, answer: dict[str, Any], pack: Callable[[Any], Any]) -> None:
    try:
        channel.send(calls, answer, pack)
    except Exception as error:
        channel.send(calls, {"unsent": type(error).__name__})


class Answering:
    """Answers questions, and keeps what is no plain data here: the judge names it by a number."""

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._numbers: dict[int, int] = {}
        made = records.Records(own=True)
        self.made = {tag: getattr(made, tag) for tag in records.TAGS}
        self.made["object"] = lambda parts: self._target(parts[0])

    def pack(self, value: Any) -> Mapping[str, Any]:
        try:
            return records.pack(value)
        except NotPlainError:
            if isinstance(value, tuple(STORAGE)):
                raise
        number = self._numbers.setdefault(id(value), len(self._kept))
        if number == len(self._kept):
            self._kept.append(value)
        return {"object": [number, type(value).__name__]}

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        try:
            found = self._target(question)
            if "use" in question:
                return {"value": _USES[question["use"]](found, *question["args"], **question["kwargs"])}
            return {"value": None} if "name" not in question else _shown(found)
        except BaseException as error:
            return {"raised": _described(error)}

    def _target(self, question: dict[str, Any]) -> Any:
        """A module, what has a name in it, or an object that was kept, and what has a name in that."""
        number, module = question.get("object"), question.get("module")
        target = importlib.import_module(str(module)) if number is None else self._kept[number]
        for part in str(question.get("name", "")).split("."):
            target = getattr(target, part) if part else target
        return target


def _shown(found: Any) -> dict[str, Any]:
    if isinstance(found, type) and issubclass(found, BaseException):
        return {"kind": exceptions.family(found)}
    return {"callable": True} if callable(found) else {"value": found}


def _described(error: BaseException) -> dict[str, Any]:
    try:
        return exceptions.describe(error)
    except BaseException:
        return {}


def _run(coroutine: Any) -> Any:
    import asyncio  # by then the candidate has loaded it

    return asyncio.run(coroutine)


def _next(target: Any) -> Iterator[Any]:
    """The next item of an iterator, nothing at its end."""
    try:
        yield next(target)
    except StopIteration:
        return


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], int(sys.argv[3]))
