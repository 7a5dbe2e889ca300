"""Runs `python -m pytest` in a fork of a process that has pytest loaded, instead of a new interpreter.

Its output is the same as pytest's; only the start is prepared. Three things make the start fast: a first run,
so that lazy imports are done; a configuration that is built before the fork; and a shorter `dir()` of
pytest's own plugins, which pytest scans for hooks and fixtures at every start.
"""

import gc
import importlib.util
import io
import json
import os
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import _pytest.config
import pytest
from _pytest.fixtures import FixtureFunctionDefinition

from ostinato.sandbox.exam.guarded.inside import start, under_pytest
from ostinato.sandbox.exam.guarded.inside.sources import MODULES, SOURCES, START
from ostinato.sandbox.exam.guarded.inside.watch import Memory
from ostinato.sandbox.exam.judged.worker import module_names
from ostinato.sandbox.guest.pytest_command import Invocation, parse

_MEMORY = Memory()
"""The machinery as `remember` finds it."""
_TEST = "import pytest\n\n\ndef test_a(tmp_path):\n    assert 1 == 1\n\n\ndef test_b():\n    assert 1 == 2\n"


def fork_body(command: str, root: str) -> Callable[[], int] | None:
    """Return a function that does the same as `command` in a fork of this process.

    The command is a call of pytest or the run of a guarded suite. None: it is something else, and needs the
    shell.
    """
    if command == start.COMMAND:
        return None if _shadows(root) else run_suite
    invocation = recognise(command, root)
    return None if invocation is None else lambda: run(invocation)


def recognise(command: str, root: str) -> Invocation | None:
    """Return the invocation when `command` is nothing but a call of pytest, otherwise None.

    Return None too when the repository at `root` has a module with the name of one that is loaded here: a
    fresh interpreter would load the repository's.

    >>> recognise("python -m pytest -q 2>&1", "/nowhere").arguments
    ('-q',)
    >>> recognise("pytest | tail -3", "/nowhere")
    """
    invocation = parse(command)
    return None if invocation is None or _shadows(root) else invocation


def _shadows(root: str) -> bool:
    return any(name in sys.modules for name in module_names(root))


def run_suite() -> int:
    """Run the suite whose order comes on standard input, as `start.COMMAND` does in a new interpreter.

    An order of the very sources that are loaded here uses these modules and the memory of the machinery that
    was made with them: this process is a fork in which no tested code has run yet.
    """
    _forget_ourselves()
    sys.path[:] = filter(None, sys.path)
    with open(0, "rb", closefd=False) as source:
        order = json.loads(source.read(int(source.readline())))
    _open_standard_streams()
    if _MEMORY.modules and (order["start"], order["sources"]) == (START, SOURCES):
        start.start(order, (MODULES, _MEMORY))
    else:
        exec(order["start"], {"order": order})  # noqa: S102 - the verifier's own program
    return 0


def _forget_ourselves() -> None:
    """Drop our own modules, which a fresh interpreter would not have loaded."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "ostinato"]:
        del sys.modules[name]


def run(invocation: Invocation) -> int:
    """Run pytest in this process, which then has to end, and return its exit status."""
    origin = importlib.util.find_spec("pytest.__main__")
    scripts = sysconfig.get_path("scripts")
    assert origin is not None
    assert origin.origin is not None
    script = Path(scripts, "pytest")
    sys.argv[:] = [str(script) if invocation.python is None else origin.origin, *invocation.arguments]
    sys.path.insert(0, scripts if invocation.python is None else str(Path.cwd()))
    sys.executable = (
        _interpreter(script) if invocation.python is None else str(Path(scripts, invocation.python))
    )
    _forget_ourselves()
    _open_standard_streams()
    try:
        status = int(_pytest.config._console_main())
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return status


def _interpreter(script: Path) -> str:
    """Return the interpreter that the first line of a script names."""
    first = script.read_text().partition("\n")[0]
    return first.removeprefix("#!").strip() if first.startswith("#!/") else sys.executable


def _open_standard_streams() -> None:
    """Make the standard streams anew, on the file descriptors that this process has now."""
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.FileIO(0, closefd=False))  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _writer(1)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _writer(2)  # type: ignore[misc]


def _writer(fd: int) -> io.TextIOWrapper:
    raw = io.BufferedWriter(io.FileIO(fd, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=fd == 2)


def prepare() -> None:
    """Load pytest and everything that a run needs, and hide it from the garbage collector.

    A collection would write to all objects, and so make every fork copy their pages.
    """
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "test_warm.py").write_text(_TEST)
        Path(scratch, "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "-q"\n')
        here = Path.cwd()
        os.chdir(scratch)
        with redirect_stdout(io.StringIO()):
            pytest.main([f"--basetemp={scratch}/base"], plugins=[_Narrower()])
        os.chdir(here)
    tempfile.tempdir = None  # a sandbox may have a TMPDIR of its own
    sys.modules.pop("test_warm", None)
    _prebuild_configs()
    gc.collect()
    gc.freeze()


def remember() -> None:
    """Make what every suite needs: the planted tests, and the memory of the machinery as it is from now on.

    A judge that is prepared in the same process changes pytest too, so this comes after it.
    """
    under_pytest.planted_code()
    _MEMORY.add_new()
    gc.freeze()


class _Narrower:
    """A plugin that shortens the `dir()` of all other plugins at the end of the first run."""

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        for plugin in config.pluginmanager.get_plugins():
            holder = plugin if isinstance(plugin, type(sys)) else type(plugin)
            if getattr(holder, "__module__", holder.__name__).startswith("_pytest."):
                _narrow(holder, plugin)


def _narrow(holder: Any, plugin: object) -> None:
    """Make `dir(plugin)` list only hooks and fixtures, which are all that pytest scans it for."""
    names = [name for name in dir(plugin) if _is_hook_or_fixture(name, getattr(holder, name, None))]
    is_module = isinstance(holder, type(sys))
    holder.__dir__ = (lambda: names) if is_module else (lambda _self: names)


def _is_hook_or_fixture(name: str, value: object) -> bool:
    return name.startswith("pytest_") or type(value) is FixtureFunctionDefinition


def _prebuild_configs() -> None:
    """Build pytest's initial configurations now, for each program name, without plugins named by `-p`."""
    build: Callable[..., pytest.Config] = _pytest.config.get_config
    calls: Sequence[tuple[str | None, list[str]]] = (
        ("python -m pytest", []),
        ("pytest", []),
        (None, [under_pytest.NO_CACHE]),
    )
    ready = {_config_key(prog, args): build(args, None, prog=prog) for prog, args in calls}

    def get_config(
        args: Sequence[str] = (), plugins: Sequence[Any] | None = None, *, prog: str | None = None
    ) -> pytest.Config:
        config = ready.get(_config_key(prog, args))
        if config is None:
            return build(args, plugins, prog=prog)
        params = pytest.Config.InvocationParams(args=args, plugins=plugins, dir=Path.cwd())
        config.invocation_params = params
        return config

    _pytest.config.get_config = get_config  # type: ignore[assignment]


def _config_key(prog: str | None, args: Sequence[str]) -> tuple[str, ...]:
    command = prog if prog in ("python -m pytest", "pytest") else ""  # else a call of `pytest.main`
    return (command, *(arg for arg in args if arg.startswith("-p")))
