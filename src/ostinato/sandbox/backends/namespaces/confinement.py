"""The confinement of the zygote's children: namespaces (`namespace_child`) or Landlock (`landlock_child`)."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from ostinato.sandbox.protocol.order import Order


class PreparedChild(Protocol):
    """A child of the zygote, prepared as far as it can be without an order."""

    def run(self, order: Order, files: Mapping[str, int], begun: Callable[[], None]) -> None:
        """Finish the sandbox and serve until the backend hangs up; `begun` is called when it serves.

        `files` are descriptors by name: `control`, the connection to the backend; `calls`, a socket for an
        exam's worker; `layer`, to start from; `egress`, the channel to which the child sends the
        sockets that it opened for the proxy.
        """
        ...


class Confinement(Protocol):
    """One way to confine processes."""

    def prepare(self) -> None:
        """Prepare the zygote before its first fork; raises OSError, RuntimeError where it cannot work."""
        ...

    def forking(self) -> AbstractContextManager[None]:
        """Surround the fork of a child that is to be confined."""
        ...

    def prepare_child(self) -> PreparedChild:
        """Confine this process, a child of the zygote, as far as it can be without an order."""
        ...

    @property
    def tests_directory(self) -> str | None:
        """The directory at which `show_tests` shows every judge its tests; None when each has its own."""
        ...

    def show_tests(self, tests: str) -> str:
        """Show this process, a judge, the directory `tests` of the machine; return where it is shown.

        The judge can write to /tmp.
        """
        ...
