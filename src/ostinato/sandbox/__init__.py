"""Where commands run: one protocol, two backends, and a verifier that cannot be talked into a pass."""

from ostinato.sandbox.base import Backend, Exam, ExecResult, Limits, Sandbox, SandboxError, SandboxPathError
from ostinato.sandbox.probe import choose_backend
from ostinato.sandbox.process import ProcessBackend
from ostinato.sandbox.verify import Verification, Verifier

__all__ = [
    "Backend",
    "Exam",
    "ExecResult",
    "Limits",
    "ProcessBackend",
    "Sandbox",
    "SandboxError",
    "SandboxPathError",
    "Verification",
    "Verifier",
    "choose_backend",
]
