"""The candidate's modules, functions and objects as hidden tests see them: each use of one is a question.

    from calc import alpha ──► Finder ──► RemoteModule("calc").alpha = Remote
    alpha(7, 4) == 28      ──► Remote(7, 4) ──calls──► worker ──► 28, plain data ──► == is the judge's own
    stack().push(1)        ──► an object that is no plain data stays there; a Remote stands for it here

Whatever a Remote is compared with, it equals only itself: equality is never the candidate's to decide.
"""

import importlib.machinery
import socket
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType
from typing import Any

from ostinato.sandbox.exam import channel, records
from ostinato.sandbox.exam.exceptions import Raised, RemoteError
from ostinato.sandbox.exam.values import NotPlainError


class Unanswered(BaseException):
    """The candidate's process is gone, late or speaks nonsense; or a test asks what cannot be asked."""


class Worker:
    """Asks the worker of the run under way; after the first failure of its channel every question fails.

    `begin`: waits for the run's worker: its socket, and until when it may be asked. `answered` is called at
    its first answer, before anything is made of it.
    """

    def __init__(
        self, begin: Callable[[], tuple[socket.socket, float]], answered: Callable[[], None]
    ) -> None:
        self._begin = begin
        self._answered = answered
        self._begun: tuple[socket.socket, float] | None = None
        self._first = True
        self._raised = Raised()
        self._remotes: dict[int, Remote] = {}
        made = records.Records(own=False)
        self._made = {tag: getattr(made, tag) for tag in records.TAGS} | {"object": self._remote}
        self.broken: str | None = None
        """Why no question is answered any more."""

    def wait(self) -> tuple[socket.socket, float]:
        if self._begun is None:
            self._begun = self._begin()
        return self._begun

    def change(self) -> None:
        """The run is over: the next one's worker is asked from now on, when it is there."""
        self.wait()[0].close()
        self._begun = self.broken = None
        self._first = True
        self._remotes.clear()

    def ask(self, **question: object) -> Any:
        """The answer; an error of the candidate's is raised here."""
        answer = self._exchange(question)
        match answer:
            case {"raised": told}:
                raise self._raised.error(told)
            case {"value": value}:
                return value
            case {"kind": family}:
                return self._raised.kind(family)
            case {"callable": True}:
                return Remote(self, question)
            case {"unsent": why}:
                raise Unanswered(f"the candidate's answer cannot be sent: {why}")
        raise RemoteError("the worker answered nonsense")

    def _exchange(self, question: dict[str, object]) -> dict[str, Any]:
        if self.broken is not None:
            raise Unanswered(self.broken)
        calls, deadline = self.wait()
        try:
            channel.send(calls, question, _pack)
            frame = channel.receive_frame(calls, deadline)
            if self._first:
                self._first = False
                self._answered()
            answer = channel.read(frame, self._made)
        except channel.ChannelError as error:
            self.broken = f"the worker failed: {error}"
            raise Unanswered(self.broken) from error
        except NotPlainError as error:
            raise Unanswered(f"a hidden test gives the candidate what cannot be sent: {error}") from error
        if type(answer) is not dict:
            raise RemoteError("the worker answered nonsense")
        return answer

    def _remote(self, parts: list[Any]) -> Any:
        number, kind = int(parts[0]), str(parts[1])
        remote = self._remotes.setdefault(number, Remote(self, {"object": number}))
        return _awaited(remote) if kind == "coroutine" else remote


async def _awaited(remote: "Remote") -> object:
    """A coroutine of the candidate's runs there, from its beginning to its end, when it is awaited here."""
    return remote._use("await")


def _pack(value: Any) -> Any:
    if type(value) is Remote:
        return {"object": [value._question]}
    return records.pack(value)


class Remote:
    """A function, class or object of the candidate's, by the question that it is the answer to."""

    def __init__(self, worker: Worker, question: dict[str, Any]) -> None:
        self._worker, self._question = worker, question
        if "name" in question:
            self.__name__ = str(question["name"]).rpartition(".")[2]

    def _use(self, use: str, /, *args: object, **kwargs: object) -> Any:
        return self._worker.ask(**self._question, use=use, args=args, kwargs=kwargs)

    def __call__(self, /, *args: object, **kwargs: object) -> object:
        return self._use("call", *args, **kwargs)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        before = f"{self._question['name']}." if "name" in self._question else ""
        return self._worker.ask(**{**self._question, "name": before + name})

    def __iter__(self) -> Iterator[object]:
        return _each(self._use("iter"))

    def __next__(self) -> object:
        return next(_each(self))

    def __len__(self) -> int:
        return int(self._use("len"))

    def __bool__(self) -> bool:
        return bool(self._use("bool"))

    def __getitem__(self, key: object) -> object:
        return self._use("item", key)

    def __setitem__(self, key: object, value: object) -> None:
        self._use("set", key, value)

    def __contains__(self, value: object) -> bool:
        return bool(self._use("in", value))

    def __enter__(self) -> object:
        return self._use("enter")

    def __exit__(self, *_: object) -> None:
        self._use("exit")


def _each(iterator: "Remote") -> Iterator[object]:
    """What an iterator of the candidate's gives, one at a time; only its own end is an end here."""
    while item := iterator._use("next"):
        yield item[0]


class RemoteModule(ModuleType):
    """A module of the candidate's: each attribute is asked for when a test names it."""

    def __init__(self, worker: Worker, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self._worker = worker

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found = _kept(lambda: self._worker.ask(module=self.__name__, name=name))
        setattr(self, name, found)
        return found


def _kept(ask: Callable[[], Any]) -> Any:
    """An import that ends the interpreter is an error of one file, and no end of the tests."""
    try:
        return ask()
    except SystemExit as error:
        raise RemoteError(f"the candidate's module exits: {error}") from error


class Finder(MetaPathFinder, Loader):
    """Serves modules from the worker, those for which `wanted` says so."""

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
        _kept(lambda: self._worker.ask(module=module.__name__))
