"""The judge's side of an exam's questions, and the candidate's modules as hidden tests see them.

from calc import alpha ──► Finder ──► RemoteModule("calc").alpha = Remote
alpha(7, 4) == 28      ──► Remote(7, 4) ──calls──► worker ──► 28, plain data ──► == is the judge's own
stack().push(1)        ──► an object that is not plain data stays there: see `references`
alpha(lambda x: x)     ──► a function of the test stays here, and the worker asks for its calls: see `lent`
"""

import builtins
import importlib.machinery
import os
import socket
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from types import FrameType, ModuleType
from typing import Any

from ostinato.sandbox.exam.judged import channel, in_place, values
from ostinato.sandbox.exam.judged.exceptions import ExceptionBuilder, RemoteError
from ostinato.sandbox.exam.judged.lent import Lender
from ostinato.sandbox.exam.judged.reference_builder import References
from ostinato.sandbox.exam.judged.references import Reference, reference_of
from ostinato.sandbox.exam.judged.values import STORAGE, NotPlainError

_LONGEST_HELD, _MANY_HELD = 1 << 14, 64
"""The longest text of a container that the judge compares before each question, and how many it compares."""


class Unanswered(BaseException):
    """The candidate's process is gone, late or breaks the protocol; or a question cannot be sent."""


class Worker:
    """The worker of a run. After the first failure of its channel every question fails.

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
        self._lent = Lender()
        self._held: dict[int, tuple[Any, str]] = {}
        references = References(self)
        self._builders: values.Builders = {
            "class": references.kind,
            "instance": references.instance,
            "exception": lambda parts: self._exceptions.kind(parts[1], parts[0]),
            "held": self._held_again,
            "lent": self._lent.lent,
        }
        self._sent = _environment()
        self.asked = 0
        self.broken: str | None = None
        """The reason why every question fails from now on."""

    def wait(self) -> tuple[socket.socket, float]:
        if self._begun is None:
            self._begun = self._begin()
        return self._begun

    def ask(self, use: str, target: object, args: Any = (), kwargs: Any = {}) -> Any:  # noqa: B006
        """Send a question and return the response; an exception of the candidate is raised here.

        `target` is a module's name, or an object of the candidate.
        """
        self._tell_of_changes()
        self.asked += 1
        return self._question(use, target, args, kwargs)

    def look(self, use: str, target: object) -> Any:
        self._tell_of_changes()
        return self._question(use, target, (), {})

    def hold(self, number: int, value: Any) -> None:
        text = values.encode(_content(value), self._pack)
        self._held.pop(number, None)
        if len(text) < _LONGEST_HELD:
            self._held[number] = value, text
        if len(self._held) > _MANY_HELD:
            del self._held[next(iter(self._held))]

    def _held_again(self, parts: list[Any]) -> Any:
        """Return a container of an object or a module: the one that the test has already, as it is now."""
        number, value = int(parts[0]), parts[1]
        if type(value) not in in_place.CONTAINERS:
            raise ValueError(f"a {type(value).__name__} is no container")
        old, _ = self._held.get(number, (None, ""))
        if old is not None and type(old) is type(value):
            value = in_place.become(old, value)
        self.hold(number, value)
        return value

    def _tell_of_changes(self) -> None:
        """Tell the worker what the test changed in place since the last question."""
        for number, (value, text) in [*self._held.items()]:
            if values.encode(_content(value), self._pack) != text:
                self.hold(number, value)
                self._question("become", Reference(self, "object", (number,)), (_content(value),), {})

    def _question(self, use: str, target: object, args: Any, kwargs: Any) -> Any:
        question = {"use": use, "args": args, "kwargs": kwargs, **self._environment()}
        question |= {"module": target} if type(target) is str else {"target": target}
        response = self._exchange(question)
        while "lent" in response:
            response = self._exchange(self._used(response))
        for each in response.get("warnings", ()):
            _warn(self._exceptions.error(each))
        if "changed" in response and response.get("value") is None:
            _change_arguments(args, kwargs, response["changed"])
        match response:
            case {"raised": {"again": int(number)}} if number < self._lent.errors:
                raise self._exceptions.tamed(self._lent.again(number))
            case {"raised": description}:
                raise self._exceptions.error(description)
            case {"value": value}:
                return value
            case {"unsent": why}:
                raise Unanswered(f"the candidate's value cannot be sent: {why}")
        raise RemoteError("the worker sent a malformed response")

    def _used(self, request: dict[str, Any]) -> dict[str, Any]:
        """Use an object of the test for the candidate, and return the answer."""
        try:
            used = self._lent.use(request["lent"], request["use"], request["args"], request["kwargs"])
            answer = {"answer": used}
            values.encode(answer, self._pack)
        except Unanswered:
            raise
        except BaseException as error:
            answer = {"error": error}
        return answer

    def _environment(self) -> dict[str, Any]:
        """Return what a test changed in the environment since the last question, as parts of a question."""
        now = _environment()
        before, self._sent = self._sent, now
        if now == before:
            return {}
        changed = {name: text for name, text in now.items() if before.get(name) != text}
        return {"environment": changed, "unset": [name for name in before if name not in now]}

    def _exchange(self, message: dict[str, object]) -> dict[str, Any]:
        if self.broken is not None:
            raise Unanswered(self.broken)
        calls, deadline = self.wait()
        try:
            channel.send(calls, message, self._pack)
            frame = channel.receive_frame(calls, deadline)
        except channel.ChannelError as error:
            self.broken = f"the worker failed: {error}"
            raise Unanswered(self.broken) from error
        except NotPlainError as error:
            raise Unanswered(
                f"a hidden test passes the candidate a value that cannot be sent: {error}"
            ) from error
        if self._first:
            self._first = False
            self._on_response()
        try:
            response = channel.read(frame, self._builders)
        except Exception as error:  # what is malformed must not look like an exception of the test's own
            self.broken = f"the worker failed: {error}"
            raise Unanswered(self.broken) from error
        if type(response) is not dict:
            raise RemoteError("the worker sent a malformed response")
        return response

    def owns(self, value: object) -> bool:
        """Return True for an object that came from the candidate and is no plain data."""
        return reference_of(value) is not None or (
            isinstance(value, type) and self._exceptions.number(value) is not None
        )

    def _pack(self, value: Any) -> Any:
        """Pack what is not plain: the candidate's objects by their number, the test's own as lent."""
        if type(value) is Reference:
            return {value.tag: list(value.parts)}
        if (reference := reference_of(value)) is not None:
            return {reference.tag: list(reference.parts)}
        if isinstance(value, type) and (number := self._exceptions.number(value)) is not None:
            return {"object": [number]}
        if type(value) is RemoteModule:
            return {"loaded": [value.__name__]}
        if isinstance(value, BaseException):
            known = type(value) if self._exceptions.number(type(value)) is not None else None
            return {"error": self._lent.describe(value, known)}
        if isinstance(value, tuple(STORAGE)):
            raise NotPlainError(f"a value of type {type(value).__name__} is not plain data")
        return self._lent.pack(value)


def _environment() -> dict[str, str]:
    """Return the environment without pytest's own variables, which name the test that runs."""
    return {name: text for name, text in os.environ.items() if not name.startswith("PYTEST")}


def _warn(warning: BaseException) -> None:
    if isinstance(warning, Warning):
        warnings.warn_explicit(warning, type(warning), "the candidate's module", 1)


def _change_arguments(args: Any, kwargs: Any, changes: object) -> None:
    try:
        in_place.apply(in_place.changeable(args, kwargs), changes)
    except (KeyError, ValueError) as error:
        raise RemoteError(f"the worker sent malformed changes: {error}") from error


def _content(value: Any) -> Any:
    """Return the plain container that an object is or holds."""
    return next(storage(value) for base, storage in STORAGE.items() if isinstance(value, base))


class RemoteModule(ModuleType):
    """A stand-in for a module of the candidate: each attribute is a question whenever a test names it."""

    def __init__(self, worker: Worker, name: str) -> None:
        super().__init__(name)
        del self.__doc__
        self.__path__: list[str] = []
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        if name in _IMPORT_SYSTEM:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name == "__all__":
            return self._exported(_importing_frame(sys._getframe(1)))
        return _refuse_exit(lambda: self._worker.ask("getattr", self.__name__, (name,)))

    @property
    def __doc__(self) -> Any:
        return self.__getattr__("__doc__")

    @__doc__.deleter
    def __doc__(self) -> None:
        vars(self).pop("__doc__", None)

    def __dir__(self) -> list[str]:
        return [*self._worker.ask("dir", self.__name__)]

    def __setattr__(self, name: str, value: object) -> None:
        """Set a name of the candidate's module; the import system's own names stay here."""
        if name in _IMPORT_SYSTEM or name == "_worker" or isinstance(value, ModuleType):
            vars(self)[name] = value
        else:
            self._worker.ask("setattr", self.__name__, (name, value))

    def __delattr__(self, name: str) -> None:
        if name in vars(self):
            del vars(self)[name]
        else:
            self._worker.ask("delattr", self.__name__, (name,))

    def _exported(self, frame: FrameType) -> list[str]:
        """Return what `import *` imports; where a test's module does so, nothing that it has already.

        Else a candidate's `math` or `len` would take the place of the one that the assertions use.
        """
        listed, names, own = self._worker.ask("exported", self.__name__)
        if listed or frame.f_code.co_name != "<module>":
            return [*names] if frame.f_code.co_name != "<module>" else self._not_bound(names, names, frame)
        return self._not_bound(names, own, frame)

    def _not_bound(self, names: list[str], own: list[str], frame: FrameType) -> list[str]:
        if hidden := [name for name in own if hasattr(builtins, name)]:
            raise ImportError(f"`import *` of {self.__name__} would hide Python's own {', '.join(hidden)}")
        bound = {name for name, value in frame.f_globals.items() if not self._worker.owns(value)}
        return [name for name in names if name not in bound and not name.startswith(("pytest", "__"))]


_IMPORT_SYSTEM = frozenset(
    (
        *("__name__", "__path__", "__file__", "__spec__", "__loader__", "__package__", "__cached__"),
        *("__builtins__", "__warningregistry__", "__wrapped__", "__test__", "__class__", "__dict__"),
    )
)
"""Names of a module that are the judge's own, since Python and pytest look for them in any module."""


def _importing_frame(frame: FrameType | None) -> FrameType:
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    assert frame is not None
    return frame


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
        _refuse_exit(lambda: self._worker.ask("import", module.__name__))
