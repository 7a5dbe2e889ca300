"""Sandboxes, in which commands run, and a verifier that a candidate's code cannot deceive into a pass.

This package itself offers only protocols and data, so that the zygote, from which every sandbox is forked,
stays small. The rest is imported from its modules: `choose`, `exam.verifier`, `backends`.
"""

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
    Spec,
    Unsupported,
)

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
    "Sandbox",
    "SandboxError",
    "SandboxPathError",
    "Spec",
    "Unsupported",
]
