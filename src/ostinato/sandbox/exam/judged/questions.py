"""The candidate's modules, functions and objects as hidden tests see them: each use sends a question.

    from calc import alpha ──► Finder ──► RemoteModule("calc").alpha = Remote
    alpha(7, 4) == 28      ──► Remote(7, 4) ──calls──► worker ──► 28, plain data ──► == is the judge's own
    stack().push(1)        ──► an object that is not plain data stays there; a Remote stands for it here

Whatever a Remote is compared with, it equals only itself: equality is never the candidate's to decide.
"""

import importlib.machinery
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType
from typing import Any

from ostinato.sandbox.exam.judged import channel, in_place, records
from ostinato.sandbox.exam.judged.exceptions import ExceptionBuilder, RemoteError
from ostinato.sandbox.exam.judged.values import NotPlainError


class Unanswered(BaseException):
    """The candidate's process is gone, late or breaks the protocol; or a question cannot be sent."""


class Worker:
    """The worker of the current run. After the first failure of its channel every question fails.

    `begin` waits for the run's worker and returns its socket and deadline. `on_response` is called at the
    first response, before it is read.
    """

    def __init__(
        self, begin: Callable[[], tuple[socket.socket, float]], on_response: Callable[[], None]
    ) -> None:
        self._begin = begin
        self._on_response = on_response
        self._begun: tuple[socket.socket, float] | None = None
        self._first = True
        self._exceptions = ExceptionBuilder()
        self._remotes: dict[int, Remote] = {}
        record_builder = records.RecordBuilder(own=False)
        self._builders = {tag: getattr(record_builder, tag) for tag in records.TAGS} | {
            "object": self._remote
        }
        self._first_environment = _environment()
        self._sent = dict(self._first_environment)
        self.broken: str | None = None
        """The reason why every question fails from now on."""

    def wait(self) -> tuple[socket.socket, float]:
        if self._begun is None:
            self._begun = self._begin()
        return self._begun

    def change(self) -> None:
        """End the run: questions go to the worker of the next run from now on."""
        self.wait()[0].close()
        self._begun = self.broken = None
        self._sent = dict(self._first_environment)
        self._first = True
        self._remotes.clear()

    def ask(self, **question: object) -> Any:
        """Send a question and return the response; an exception of the candidate is raised here."""
        response = self._exchange({**question, **self._environment()})
        if "changed" in response and response.get("value") is None:
            _change_arguments(question, response["changed"])
        match response:
            case {"raised": description}:
                raise self._exceptions.error(description)
            case {"value": value}:
                return value
            case {"kind": family}:
                return self._exceptions.kind(family)
            case {"callable": True}:
                return Remote(self, question)
            case {"unsent": why}:
                raise Unanswered(f"the candidate's value cannot be sent: {why}")
        raise RemoteError("the worker sent a malformed response")

    def _environment(self) -> dict[str, Any]:
        """Return what a test changed in the environment since the last question, as parts of a question."""
        now = _environment()
        before, self._sent = self._sent, now
        if now == before:
            return {}
        changed = {name: text for name, text in now.items() if before.get(name) != text}
        return {"environment": changed, "unset": [name for name in before if name not in now]}

    def _exchange(self, question: dict[str, object]) -> dict[str, Any]:
        if self.broken is not None:
            raise Unanswered(self.broken)
        calls, deadline = self.wait()
        try:
            channel.send(calls, question, _pack)
            frame = channel.receive_frame(calls, deadline)
            if self._first:
                self._first = False
                self._on_response()
            response = channel.read(frame, self._builders)
        except channel.ChannelError as error:
            self.broken = f"the worker failed: {error}"
            raise Unanswered(self.broken) from error
        except NotPlainError as error:
            raise Unanswered(
                f"a hidden test passes the candidate a value that cannot be sent: {error}"
            ) from error
        if type(response) is not dict:
            raise RemoteError("the worker sent a malformed response")
        return response

    def _remote(self, parts: list[Any]) -> Any:
        number, kind = int(parts[0]), str(parts[1])
        remote = self._remotes.setdefault(number, Remote(self, {"object": number}))
        return _awaited(remote) if kind == "coroutine" else remote


def _environment() -> dict[str, str]:
    """Return the environment without pytest's own variables, which name the test that runs."""
    return {name: text for name, text in os.environ.items() if not name.startswith("PYTEST")}


def _change_arguments(question: dict[str, Any], changes: object) -> None:
    try:
        in_place.apply(in_place.changeable(question["args"], question["kwargs"]), changes)
    except (KeyError, ValueError) as error:
        raise RemoteError(f"the worker sent malformed changes: {error}") from error


async def _awaited(remote: "Remote") -> object:
    """Run a coroutine of the candidate in the worker, from beginning to end, when it is awaited here."""
    return remote._use("await")


def _pack(value: Any) -> Any:
    if type(value) is Remote:
        return {"object": [value._question]}
    return records.pack(value)


class Remote:
    """A stand-in for a function, class or object of the candidate, which its question identifies."""

    _worker: Worker
    _question: dict[str, Any]

    def __init__(self, worker: Worker, question: dict[str, Any]) -> None:
        object.__setattr__(self, "_worker", worker)
        object.__setattr__(self, "_question", question)
        if "name" in question:
            object.__setattr__(self, "__name__", str(question["name"]).rpartition(".")[2])

    def _use(self, use: str, /, *args: object, **kwargs: object) -> Any:
        return self._worker.ask(**self._question, use=use, args=args, kwargs=kwargs)

    def __call__(self, /, *args: object, **kwargs: object) -> object:
        return self._use("call", *args, **kwargs)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        before = f"{self._question['name']}." if "name" in self._question else ""
        return self._worker.ask(**{**self._question, "name": before + name})

    def __setattr__(self, name: str, value: object) -> None:
        self._use("setattr", name, value)

    def __delattr__(self, name: str) -> None:
        self._use("delattr", name)

    def __instancecheck__(self, value: object) -> bool:
        return type(value) is Remote and bool(self._use("isinstance", value))

    def __str__(self) -> str:
        return str(self._use("str"))

    def __repr__(self) -> str:
        return str(self._use("repr"))

    def __iter__(self) -> Iterator[object]:
        return _items(self._use("iter"))

    def __reversed__(self) -> Iterator[object]:
        return _items(self._use("reversed"))

    def __next__(self) -> object:
        return next(_items(self))

    def __len__(self) -> int:
        return int(self._use("len"))

    def __bool__(self) -> bool:
        return bool(self._use("bool"))

    def __getitem__(self, key: object) -> object:
        return self._use("item", key)

    def __setitem__(self, key: object, value: object) -> None:
        self._use("set", key, value)

    def __delitem__(self, key: object) -> None:
        self._use("delete", key)

    def __contains__(self, value: object) -> bool:
        return any(item is value or item == value for item in self)

    def __enter__(self) -> object:
        return self._use("enter")

    def __exit__(self, *_: object) -> None:
        self._use("exit")


def _items(iterator: "Remote") -> Iterator[object]:
    """Yield the items of an iterator of the candidate; only its own end ends the iteration."""
    while item := iterator._use("next"):
        yield item[0]


class RemoteModule(ModuleType):
    """A stand-in for a module of the candidate: each attribute is a question when a test names it."""

    def __init__(self, worker: Worker, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self._worker = worker

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = _refuse_exit(lambda: self._worker.ask(module=self.__name__, name=name))
        vars(self)[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        """Set a name of the candidate's module; the import system's own names stay here."""
        if name.startswith("__") or name == "_worker" or isinstance(value, ModuleType):
            vars(self)[name] = value
            return
        old = vars(self).get(name)
        if type(old) is Remote and "name" in old._question:  # from now on its name means another object
            kept = self._worker.ask(**old._question, use="keep", args=(), kwargs={})
            object.__setattr__(old, "_question", kept._question)
        self._worker.ask(module=self.__name__, use="setattr", args=(name, value), kwargs={})
        vars(self).pop(name, None)


def _refuse_exit(ask: Callable[[], Any]) -> Any:
    """Turn an exit during an import into an error of that one file, so that the other tests go on."""
    try:
        return ask()
    except SystemExit as error:
        raise RemoteError(f"the candidate's module exits: {error}") from error


class Finder(MetaPathFinder, Loader):
    """An importer of the worker's modules, for the names that `wanted` accepts."""

    def __init__(self, worker: Worker, wanted: Callable[[str], bool]) -> None:
        self._worker = worker
        self._wanted = wanted

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not self._wanted(fullname.partition(".")[0]):
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return RemoteModule(self._worker, spec.name)

    def exec_module(self, module: ModuleType) -> None:
        _refuse_exit(lambda: self._worker.ask(module=module.__name__))
