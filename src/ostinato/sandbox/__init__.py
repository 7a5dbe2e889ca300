"""Where commands run: one protocol, several backends, and a verifier that cannot be talked into a pass.

What is more than data is loaded when it is first asked for: the zygote, which every sandbox is forked from,
must stay small.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ostinato.sandbox.base import (
    Backend,
    Capabilities,
    Egress,
    Exam,
    ExecResult,
    Isolation,
    Limits,
    Mount,
    Process,
    Sandbox,
    SandboxError,
    SandboxPathError,
    Snapshot,
    SnapshotKind,
    Spec,
    Unsupported,
    Usage,
)

if TYPE_CHECKING:
    from ostinato.sandbox.backends.process.backend import ProcessBackend
    from ostinato.sandbox.choose import choose_backend
    from ostinato.sandbox.exam.verifier import Verification, Verifier

_LATER = {
    "ProcessBackend": "backends.process.backend",
    "Verification": "exam.verifier",
    "Verifier": "exam.verifier",
    "choose_backend": "choose",
}

__all__ = [
    "Backend",
    "Capabilities",
    "Egress",
    "Exam",
    "ExecResult",
    "Isolation",
    "Limits",
    "Mount",
    "Process",
    "ProcessBackend",
    "Sandbox",
    "SandboxError",
    "SandboxPathError",
    "Snapshot",
    "SnapshotKind",
    "Spec",
    "Unsupported",
    "Usage",
    "Verification",
    "Verifier",
    "choose_backend",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
