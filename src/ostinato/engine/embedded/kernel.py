"""The library of `kernel.c`, compiled once for this processor by the available C compiler, then kept.

It lies in `$XDG_CACHE_HOME/ostinato` (or `~/.cache/ostinato`) under the hash of everything it depends on, so
a new source, compiler or processor leads to a new library. Compiling takes about two seconds.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

SOURCES = tuple(Path(__file__).with_name(name) for name in ("kernel.c", "drafts.h", "mtp.h"))
OPTIONS = ("-O3", "-march=native", "-std=gnu11", "-shared", "-fPIC")
THREADS = "-fopenmp"
"""The option for several threads; a compiler without it makes a kernel for one."""
PATIENCE_S = 120
INT, REAL, AT = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
SIGNATURES: dict[str, tuple[list[type], type | None]] = {
    "create": ([AT, REAL, AT, AT], AT),
    "discard": ([AT], None),
    "packed_size": ([INT, INT], INT),
    "padded_width": ([INT], INT),
    "pack": ([AT, INT, INT, AT], None),
    "copy_prefix": ([AT, INT, INT, INT], None),
    "fill": ([AT, AT, AT, INT, INT], None),
    "advance": ([AT, AT, AT, AT, INT, AT, INT, INT, AT], INT),
    "drafted": ([AT, AT], None),
}


class KernelError(Exception):
    """There is no kernel on this machine; the message says why."""


@cache
def library() -> ctypes.CDLL:
    """Return the compiled kernel. Raises KernelError without a working compiler."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise KernelError("no C compiler: neither $CC, cc, gcc nor clang")
    path = _folder() / f"kernel-{_key(compiler)}.so"
    if not path.exists():
        _compile(compiler, path)
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise KernelError(f"{path} cannot be loaded: {error}") from error
    for name, (arguments, result) in SIGNATURES.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = arguments, result
    return loaded


def _folder() -> Path:
    try:
        base = os.environ.get("XDG_CACHE_HOME")
        folder = (Path(base) if base else Path.home() / ".cache") / "ostinato"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError) as error:
        raise KernelError(f"no place to keep the kernel: {error}") from error
    return folder


def _key(compiler: str) -> str:
    """Return the hash of everything the library depends on: source, options, compiler and processor."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
    parts = [
        *(source.read_text() for source in SOURCES),
        *OPTIONS,
        THREADS,
        _run(compiler, "--version"),
        platform.machine(),
        flags,
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _compile(compiler: str, path: Path) -> None:
    """Compile next to `path`, then rename: two processes may do this at once."""
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".so", delete=False) as file:
        draft = Path(file.name)
    try:
        command = [*OPTIONS, "-o", str(draft), str(SOURCES[0]), "-lm"]
        try:
            _run(compiler, THREADS, *command)
        except KernelError:
            _run(compiler, *command)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _run(compiler: str, *arguments: str) -> str:
    """Return the output of the compiler. Raises KernelError when it does not run or fails."""
    command = [compiler, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KernelError(f"{compiler} does not run: {error}") from error
    if done.returncode:
        raise KernelError(f"{compiler} failed: {done.stderr.strip()[-500:]}")
    return done.stdout
