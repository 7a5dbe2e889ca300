"""The settings of the sandboxes that a run's commands are carried out in."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxConfig:
    """The table `[sandbox]` of a run's file.

    >>> SandboxConfig(backend="podman", runtime="runsc").image
    ''
    """

    backend: str = "auto"
    """`ns`, `process` (no security boundary), or whichever the probe allows; `podman` or `docker` where a
    team runs containers; on servers of others `e2b` and `agent-sandbox` (`docs/sandbox-foreign.md`)."""
    image: str = ""
    """The name of the container image that `podman` and `docker` run commands in; without one they see the
    machine's own programs."""
    egress: str = "none"
    """The hosts that sessions may reach, and exams never: `none`; `registries`, the package indexes that
    pip and npm of this machine are configured with; or the path of a policy file (`docs/egress.md`)."""
    runtime: str = ""
    """The OCI runtime of `podman` and `docker`, by default theirs; `runsc` is gVisor, a kernel of its own."""
