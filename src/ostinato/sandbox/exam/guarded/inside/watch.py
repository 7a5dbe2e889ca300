"""The detectors of a guarded run: they notice when tested code changes or reaches for what judges it.

Each sign is reported at once, so an exit that follows does not hide it. Only files that
the candidate changed are suspected; the repository's own code and the hidden suite may do what they did.
A function that an installed library put into the machinery is reported with its digest, because the verifier
can find out whether that library always does so (`witness.py`).
"""

import hashlib
import inspect
import itertools
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import is_
from typing import Any

Send = Callable[[dict[str, Any]], None]
_DEEP = ("_pytest", "pluggy", "pytest", "unittest")
"""Packages whose classes are compared method by method."""
_LEFT_ALONE = {
    *("sys", "os", "posix", "io", "warnings", "logging", "locale", "site", "threading", "signal", "typing"),
}
"""Modules of the library that honest programs and their tests change for good."""
_REACHES = {
    *("gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys._getframe", "sys._current_frames"),
    *("sys.settrace", "sys.setprofile", "sys.addaudithook", "ctypes.dlopen"),
}
"""Events by which code reaches objects that nobody gave it."""
_OPENS = ("open", "os.link", "os.rename")
_STARTS = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen")
"""Events of files and programs, which code reaches through the library too."""
_PLAIN = frozenset((int, str, bytes, float, bool, type(None), complex))
_FRAMES = {"tb_frame", "gi_frame", "cr_frame", "ag_frame"}
"""Attributes that lead to the frames of others."""
_SHA256, _MODULES = hashlib.sha256, sys.modules
_LIBRARY = (os.path.dirname(os.__file__),)  # noqa: PTH120
_PASSED_OVER = (inspect.__file__,)


Space = tuple[str, Mapping[str, Any], dict[str, Any]]
"""The names of a module or class: where, all names now, and as they were those that can be called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The test machinery, the builtins and the library as they were.

    A memory that a warm interpreter made serves each of its forks: the tested code lives in the fork alone.

    >>> Memory().spaces
    []
    """

    modules: dict[str, types.ModuleType] = field(default_factory=dict)
    spaces: list[Space] = field(default_factory=list)

    def add_new(self) -> None:
        """Remember the modules that are loaded now and not yet in this memory."""
        for name, module in list(sys.modules.items()):
            top = name.partition(".")[0]
            if name in self.modules or top in _LEFT_ALONE:
                continue
            if top in _DEEP or top in sys.stdlib_module_names:
                self.modules[name] = module
                self.spaces.extend(_spaces(name, module, classes=top in _DEEP))


def _spaces(name: str, module: types.ModuleType, *, classes: bool) -> Iterator[Space]:
    yield name, vars(module), _callables(vars(module))
    if classes:
        for key, value in vars(module).items():
            if type(value) is type and value.__module__ == name:
                yield f"{name}.{key}", value.__dict__, _callables(value.__dict__)


def _callables(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a change of would be a sign: reading a value makes a fork copy its page of memory."""
    return {key: value for key, value in space.items() if callable(value)}


class TamperWatch:
    """The detectors of one run.

    `known` maps a changed file to the words that its pristine text had already: these events are its own.
    `hidden` are the files of the hidden suite. `memory` is one that was made earlier, which is completed.
    """

    def __init__(
        self, known: dict[str, list[str]], hidden: Iterable[str], send: Send, memory: Memory | None = None
    ) -> None:
        self._changed = frozenset(known)
        self._known = known
        self.hidden = frozenset(hidden)
        self._hidden_nodes = frozenset(filter(None, map(_node, self.hidden)))
        self._send = send
        self._memory = memory or Memory()
        self._ours: dict[str, dict[str, Any]] = {}

    def sign(self, sign: str) -> None:
        """Report a sign of tampering."""
        self._send({"sign": sign})

    def replace(self, where: str, owner: Any, name: str, value: Any) -> None:
        """Set a name of the machinery to a function of ours, which has to stay there too."""
        setattr(owner, name, value)
        self._ours.setdefault(where, {})[name] = value

    def begin(self) -> None:
        """Remember the machinery as it is now, and listen to what the tested code reaches for."""
        self._memory.add_new()
        for where, _, before in self._memory.spaces:
            if where in self._ours:
                before.update(self._ours[where])
        if self._changed:
            sys.addaudithook(self._listener())

    def check(self) -> None:
        """Report what was changed since `begin` and is not as it was."""
        for name, module in self._memory.modules.items():
            if sys.modules.get(name) is not module:
                self.sign(f"the module {name} was replaced")
        for where, space, before in self._memory.spaces:
            if all(map(is_, map(space.get, before), before.values())):
                continue
            for key, value in before.items():
                if space.get(key) is not value:
                    self._changed_name(f"{where}.{key}", space.get(key))
        for finder in [*sys.meta_path, *sys.path_hooks]:
            if _file_of(finder) in self._changed:
                self.sign("the candidate's code takes part in every import")

    def _changed_name(self, where: str, value: Any) -> None:
        """Report a name of the machinery that has another value, with the library whose function it is."""
        report: dict[str, Any] = {"sign": f"{where} was changed"}
        if digest := digest_of(value):
            report["replaced"] = [where, value.__module__, digest]
        self._send(report)

    def same(self, left: Any, right: Any) -> Any:
        """Return `left == right`, and report an operand of the candidate that equals anything."""
        result = left == right
        if _holds(result) and not (type(left) in _PLAIN and type(right) in _PLAIN):
            for each in (*_within(left), *_within(right)):
                if self._compares(type(each)) and _equals_anything(each):
                    self.sign(f"{type(each).__name__} is equal to anything")
        return result

    def _compares(self, kind: type) -> bool:
        """Return True for a class whose equality the candidate wrote."""
        if (code := getattr(kind.__eq__, "__code__", None)) is not None:
            return self._is_own(code.co_filename)
        return "__eq__" in vars(kind) and _file_of(kind) in self._changed

    def _is_own(self, path: str) -> bool:
        """Return True for code of a changed file, and for code without a file."""
        return path.startswith("<") or path in self._changed

    def _listener(self) -> Callable[[str, tuple[Any, ...]], None]:
        """Return a hook that reports when a changed file reaches for what nobody gave it."""
        frame_at, busy = sys._getframe, False
        words: dict[str, Callable[[tuple[Any, ...]], str]] = {
            "object.__getattr__": self._attribute,
            "object.__setattr__": lambda arguments: "__code__" if arguments[1] == "__code__" else "",
            **dict.fromkeys(_OPENS, lambda arguments: self._named(arguments[0])),
            **dict.fromkeys(_STARTS, self._run),
        }
        for event in _REACHES:
            words[event] = partial(_last_part, event)

        def listen(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal busy
            find = words.get(event)
            if find is None or busy:
                return
            busy = True
            try:
                if word := find(arguments):
                    caller = _caller(frame_at(1), _LIBRARY if event in (*_OPENS, *_STARTS) else _PASSED_OVER)
                    if caller in self._changed and word not in self._known.get(caller, ()):
                        self.sign(f"{os.path.basename(caller)} reaches for {word}")  # noqa: PTH119
            finally:
                busy = False

        return listen

    def _attribute(self, arguments: tuple[Any, ...]) -> str:
        owner, name = arguments
        if name == "__code__":
            code = getattr(owner, "__code__", None)
            return "the hidden tests" if getattr(code, "co_filename", "") in self.hidden else ""
        return name if name in _FRAMES else ""

    def _named(self, path: Any) -> str:
        """Return what a path leads to, by whatever name: links, bytes and open folders included."""
        if not isinstance(path, (str, bytes)):
            return ""
        text = os.fsdecode(path)
        if text.startswith(("/proc/self/", "/proc/thread-self/", f"/proc/{os.getpid()}/")):
            return "/proc"
        node = _node(text)
        beside = node is None and os.path.basename(text) in map(os.path.basename, self.hidden)  # noqa: PTH119
        return "the hidden tests" if beside or node in self._hidden_nodes else ""

    def _run(self, arguments: tuple[Any, ...]) -> str:
        """Return what another program is told to read."""
        told = os.fsdecode(arguments[0]) if isinstance(arguments[0], bytes) else repr(arguments[:2])
        return "the hidden tests" if any(os.path.basename(each) in told for each in self.hidden) else ""  # noqa: PTH119


def digest_of(value: Any) -> str:
    """Return a digest of a function of a module and of those that it calls there; "" for other values.

    Two interpreters in which the module was loaded from the same file give the same digest.
    """
    module = _MODULES.get(value.__module__) if type(value) is types.FunctionType else None
    if module is None or value.__globals__ is not vars(module) or value.__closure__ or value.__kwdefaults__:
        return ""
    used = [value.__globals__.get(name) for name in value.__code__.co_names]
    functions = [each for each in (value, *used) if type(each) is types.FunctionType]
    others = [type(each).__name__ for each in used]
    told = [(each.__module__, _described(each.__code__)) for each in functions]
    return _SHA256(repr((told, others, _described(value.__defaults__))).encode()).hexdigest()


def _described(value: Any) -> Any:
    """Return what a constant or a piece of code is, in plain values that are the same in every process."""
    kind = type(value)
    if kind is types.CodeType:
        names = (value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)
        place = (value.co_filename, value.co_qualname, value.co_firstlineno)
        return (*place, *names, value.co_code, [_described(each) for each in value.co_consts])
    if kind is tuple:
        return [_described(each) for each in value]
    if kind is frozenset:
        return sorted(repr(_described(each)) for each in value)
    return value if kind in _PLAIN or value is ... else kind.__name__


def _holds(result: Any) -> bool:
    try:
        return bool(result)
    except Exception:
        return False  # an array: whoever asserts it fails


def _node(path: str) -> tuple[int, int] | None:
    """Return which file a path leads to, None for one that is not there."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _last_part(event: str, _: tuple[Any, ...]) -> str:
    return event.rpartition(".")[2]


def _caller(frame: types.FrameType | None, passed_over: tuple[str, ...]) -> str:
    """Return the file of the nearest frame that is neither a string nor in a file that is passed over.

    Code that prints a traceback reads the source of tests by honest means, so it has no caller.
    """
    while frame is not None:
        path = frame.f_code.co_filename
        if path.endswith("/traceback.py"):
            return ""
        if not path.startswith(("<", *passed_over)):
            return path
        frame = frame.f_back
    return ""


def _file_of(value: Any) -> str:
    """Return the file of the module in which an object, its class or its function was made."""
    module = sys.modules.get(getattr(value, "__module__", None) or type(value).__module__)
    return str(getattr(module, "__file__", None) or "")


def _within(value: Any, depth: int = 3) -> Iterator[Any]:
    """Yield a value, or the first values that a plain container holds, those in containers there included."""
    kind = type(value)
    if kind in _PLAIN or depth == 0:
        return
    if kind in (list, tuple, set, frozenset, dict):
        for each in itertools.islice(value.values() if kind is dict else value, 100):
            yield from _within(each, depth - 1)
    else:
        yield value


def _equals_anything(value: Any) -> bool:
    """Return whether a value equals anything, or any value of a kind that tests compare with."""
    chance = os.urandom(8)
    word, number = chance.hex(), int.from_bytes(chance, "big")
    if all(_is_equal(value, other) for other in (object(), chance, word)):
        return True
    kinds = (number, -number / 7, [word, number], (word, number), {word: number}, {word, number})
    return any(_is_equal(value, other) for other in kinds)


def _is_equal(value: Any, other: Any) -> bool:
    try:
        return bool(value == other)
    except Exception:
        return False
