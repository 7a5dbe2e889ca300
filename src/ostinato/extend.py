"""The door for code that is not ours: plug-ins, the registries that they add to, and their hashes.

::

    use = ["my_team.py"]        # in a run's file, or `ostinato --use my_team.py COMMAND`
      ─► the file is run once, before anything else of the settings is read
      ─► what it adds is found by its name in a Registry, beside what ships
      ─► child processes inherit the list with the hash of each source, and refuse another

A plug-in is a Python file or a package beside the file that names it, or an entry point of the group
`ostinato` of an installed package. Nothing is loaded that no file and no flag names. A file of settings may
lie in a repository that a stranger wrote, as a run folder below it may: what it names is loaded only where
this person has named the plug-in before, by a flag or from Python.
"""

import ctypes
import hashlib
import importlib.util
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Generic, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
INHERITED = "OSTINATO_USE"
"""The environment variable by which child processes load the same plug-ins."""
GROUP = "ostinato"
"""The group of entry points that name plug-ins of installed packages."""
CALL_S, LOAD_S = 10.0, 60.0
"""The seconds that one call of a plug-in, and its loading, may take."""


class PluginError(Exception):
    """A plug-in cannot be loaded or has failed; the message names its file, the line and what to do."""


class _OverdueError(BaseException):
    """Raised inside a plug-in whose time is over; no `except Exception` of its own holds it up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A plug-in that is loaded.

    >>> Plugin(name="/team/my_team.py", files=(), digest="1f2e3d4c5b6a").name
    '/team/my_team.py'
    """

    name: str
    """The path of its file or package, or the name of its entry point, by which it is found again."""
    files: tuple[Path, ...]
    digest: str
    """12 hexadecimal digits, which change with any byte of its source."""


class Registry(Mapping[str, T], Generic[T]):
    """The things of one kind by name: ours first, then those that plug-ins add.

    >>> Registry("animal", {"cat": 4})["cat"]
    4
    """

    def __init__(self, kind: str, ours: Mapping[str, T]) -> None:
        self.kind = kind
        self._things = dict(ours)
        self._from: dict[str, Plugin] = {}
        _registries.append(self)

    def __getitem__(self, name: str) -> T:
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)

    def add(self, name: str, thing: T) -> T:
        """Add what a plug-in brings; raises PluginError for a name that is no name, or that is taken."""
        plugin = _loading[-1] if _loading else _of_caller()
        if not name.replace("-", "_").isidentifier():
            raise PluginError(f"{plugin.name}: {name!r} is no name for a {self.kind}: use letters and _")
        if name in self._things:
            owner = self._from[name].name if name in self._from else "ostinato itself"
            raise PluginError(f"{plugin.name}: {owner} has a {self.kind} {name} already: take another name")
        self._things[name] = thing
        self._from[name] = plugin
        return thing

    def digest(self, name: str) -> str:
        """Return the hash of the plug-in that brought this thing; empty for ours."""
        return self._from[name].digest if name in self._from else ""

    def plugin(self, name: str) -> Plugin:
        """Return the plug-in that brought this thing; raises KeyError for ours."""
        return self._from[name]

    def _forget(self, plugin: Plugin) -> None:
        for name in [name for name, each in self._from.items() if each is plugin]:
            del self._things[name], self._from[name]


_registries: list[Registry[Any]] = []
_loading: list[Plugin] = []
_loaded: dict[str, Plugin] = {}


def digests(registry: Registry[Any], names: Sequence[str]) -> dict[str, str]:
    """Return the hashes of the plug-ins behind these names; empty where all are ours."""
    return {name: digest for name in names if name in registry and (digest := registry.digest(name))}


def use(name: str, *, beside: Path = Path(), by: str = "") -> Plugin:
    """Load a plug-in, once, and let the child processes of this one load it too; return it.

    `beside` is the folder that a file or package is looked for in. `by` is the file of settings that names
    it; it is empty for a person, who thereby allows it for good. Raises PluginError for one that is not
    allowed, is not there, or fails, of which nothing stays registered.
    """
    from importlib.metadata import entry_points  # takes as long as the rest of `--version`

    entry = next((each for each in entry_points(group=GROUP) if each.name == name), None)
    path = None if entry is not None else _path(name, beside)
    key = name if path is None else str(path)
    if key in _loaded:
        return _loaded[key]
    if path is not None:
        _allow(path, by)
    files = _files(path, name if entry is None else entry.module)
    plugin = Plugin(name=key, files=files, digest=_digest(files))
    _loading.append(plugin)
    try:
        with _within(LOAD_S):
            if path is None:
                assert entry is not None
                entry.load()
            else:
                _run(path, files[0])
    except BaseException as error:
        for registry in _registries:
            registry._forget(plugin)
        if isinstance(error, KeyboardInterrupt | PluginError):
            raise
        raise failure("the plug-in", plugin, error, LOAD_S) from error
    finally:
        _loading.pop()
    _loaded[key] = plugin
    os.environ[INHERITED] = json.dumps([[each.name, each.digest] for each in _loaded.values()])
    return plugin


def allowed() -> Path:
    """Return the file that lists the plug-ins which this person has named, a path a line."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "ostinato" / "plugins"


def _allow(path: Path, by: str) -> None:
    listed = allowed()
    known = listed.read_text().splitlines() if listed.is_file() else []
    if str(path) in known:
        return
    if by:
        raise PluginError(
            f"{by} names the plug-in {path}, which you have not used before: it would run with your rights. "
            f"Read it, and name it once yourself: ostinato --use {path} COMMAND"
        )
    with suppress(OSError):  # a home that cannot be written to remembers nothing
        listed.parent.mkdir(parents=True, exist_ok=True)
        with listed.open("a") as out:
            out.write(f"{path}\n")


def inherit() -> None:
    """Load the plug-ins of the process that started this one; raises PluginError for a changed one."""
    for name, digest in json.loads(os.environ.get(INHERITED, "[]")):
        plugin = use(name)  # that process was allowed to
        if plugin.digest != digest:
            raise PluginError(
                f"{name} was changed while what uses it is running, whose processes would not agree on what "
                "it says: end the run and start it again, and it goes on with the new source"
            )


def guarded(what: str, function: Callable[P, T]) -> Callable[P, T]:
    """Return a function of a plug-in that fails as a PluginError, and after CALL_S seconds at the latest."""
    plugin = _loading[-1] if _loading else _of_caller()

    @wraps(function)
    def call(*words: P.args, **named: P.kwargs) -> T:
        try:
            with _within(CALL_S):
                return function(*words, **named)
        except (Exception, SystemExit, _OverdueError) as error:
            raise failure(f"the {what}", plugin, error, CALL_S) from error

    return call


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise _OverdueError in the block when the time is over: by a signal in the main thread, which ends a
    wait too; elsewhere at the next line of Python."""
    if threading.current_thread() is threading.main_thread():

        def overdue(_: int, __: FrameType | None) -> None:
            raise _OverdueError

        before = signal.signal(signal.SIGALRM, overdue)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        return
    mine, lock, over = threading.get_ident(), threading.Lock(), False

    def interrupt() -> None:
        with lock:
            if not over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(mine), ctypes.py_object(_OverdueError)
                )

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            over = True
        timer.cancel()


def _path(name: str, beside: Path) -> Path:
    """Return the file or the package's folder that a name means."""
    given = beside / Path(name).expanduser()
    choices = [given] if given.suffix == ".py" else [given.with_suffix(".py"), given]
    for each in choices:
        if each.is_file() or (each / "__init__.py").is_file():
            return each.resolve()
    raise PluginError(
        f"use names {name!r}: there is no {choices[0]}, and no installed package has an entry point "
        f"{name!r} of the group {GROUP!r}"
    )


def _files(path: Path | None, module: str) -> tuple[Path, ...]:
    """Return the sources of a plug-in, the one that is run first."""
    if path is None:
        found = importlib.util.find_spec(module.partition(".")[0])
        if found is None or found.origin is None:
            raise PluginError(f"the entry point of {module} names no module: install its package anew")
        path = Path(found.origin)
        path = path.parent if path.name == "__init__.py" else path
    if path.is_file():
        return (path,)
    first = path / "__init__.py"
    return (first, *sorted(each for each in path.rglob("*.py") if each != first))


def _digest(files: Sequence[Path]) -> str:
    whole = hashlib.sha256()
    for path in files:
        data = path.read_bytes()
        whole.update(f"{path.relative_to(files[0].parent)}\0{len(data)}\0".encode() + data)
    return whole.hexdigest()[:12]


def _run(path: Path, first: Path) -> ModuleType:
    name = path.stem if path.is_file() else path.name
    if name in sys.modules:
        raise PluginError(f"{path}: a module {name} is loaded already: rename the plug-in")
    folders = None if path.is_file() else [str(path)]
    spec = importlib.util.spec_from_file_location(name, first, submodule_search_locations=folders)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _of_caller() -> Plugin:
    """Return the plug-in that a file makes which Python itself imported, as a test of it does."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(str(Path(__file__).parent)):
        frame = frame.f_back
    path = Path("" if frame is None else frame.f_code.co_filename)
    if not path.is_file():
        raise PluginError("what is added must stand in a file, so that other processes find it: use FILE.py")
    return Plugin(name=str(path), files=(path,), digest=_digest((path,)))


def failure(what: str, plugin: Plugin, error: BaseException, seconds: float = CALL_S) -> PluginError:
    """Return the error of a plug-in's part that failed, or was not done within `seconds`."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [each for each in frames if Path(each.filename) in plugin.files]
    where = f"{inside[-1].filename} line {inside[-1].lineno}" if inside else plugin.name
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename} line {error.lineno}"
    if isinstance(error, _OverdueError | TimeoutError):
        return PluginError(f"{what} did not end within {seconds:g} s and was at {where}: mend it there")
    return PluginError(f"{what} failed at {where}, {type(error).__name__}: {error}")
