"""Which backend this machine can run: found out by running it, never by looking at flags."""

import logging
import sys
import tempfile
from pathlib import Path

from ostinato.sandbox.base import Backend, SandboxError
from ostinato.sandbox.process import ProcessBackend

log = logging.getLogger(__name__)


async def choose_backend(want: str = "auto") -> Backend:
    """`ns`, `process`, or `auto`: namespaces where they work, else processes with the reason in the log.

    Raises SandboxError for `ns` where it does not work, ValueError for another name.
    """
    match want:
        case "process":
            return ProcessBackend()
        case "ns":
            return await probe_ns()
        case "auto":
            try:
                return await probe_ns()
            except SandboxError as error:
                log.warning("no sandbox boundary on this machine, commands run as plain processes: %s", error)
                return ProcessBackend()
    raise ValueError(f"no sandbox backend {want!r}: choose auto, ns or process")


async def probe_ns() -> Backend:
    """A namespace backend that has just opened a sandbox and run a command in it; raises SandboxError."""
    if sys.platform != "linux":
        raise SandboxError(f"namespaces need Linux, this is {sys.platform}; use the process backend")
    from ostinato.sandbox.ns import NsBackend  # imports Linux-only modules

    backend = NsBackend()
    try:
        with tempfile.TemporaryDirectory() as repo:
            sandbox = await backend.open(Path(repo))
            result = await sandbox.exec("echo works > here && cat here")
            await sandbox.close()
    except BaseException:
        await backend.aclose()
        raise
    if result.output != "works\n":
        await backend.aclose()
        raise SandboxError(f"a command in a sandbox failed: {result.output!r}; use the process backend")
    return backend
