"""The command lines of Podman and Docker: no network, no capability, a read-only root, bounds."""

import hashlib
import io
import os
import secrets
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ostinato.sandbox.backends.container import root
from ostinato.sandbox.backends.environment import command_environment
from ostinato.sandbox.base import SandboxError, Spec
from ostinato.sandbox.config import SandboxConfig
from ostinato.sandbox.files import rootfs

GVISOR = "runsc"
UNIFIED = Path("/sys/fs/cgroup/cgroup.controllers").exists()
"""True where the machine has cgroups of version 2 alone, which an ordinary user's containers can use."""
_AGENT_MB, _GVISOR_MB, _GVISOR_THREADS = 192, 512, 512
"""What the agent, and gVisor's kernel, may have beside the commands."""
_FIRST_USER = 1_800_000_000
"""Users from here on own nothing on any machine: as root, each container gets one of its own, so that neither
files nor the kernel's counts for a user are shared with anybody."""
_IN_GVISOR = ("SETUID", "SETGID", "SETPCAP", "CHOWN")
"""The capabilities, of gVisor's kernel and not the machine's, with which the agent takes another user than
its commands: there process 1 can be killed by its own user. It gives them up before the first command."""
_PATIENCE_S = 300.0


class ContainerEngine:
    """One engine with its settings; `home` has the agent's modules, which every container sees."""

    def __init__(self, program: str, config: SandboxConfig, home: Path) -> None:
        self.program = program
        self._runtime, self._image, self._home = config.runtime, config.image, home

    @property
    def own_kernel(self) -> bool:
        return self._runtime == GVISOR

    def prepare(self) -> None:
        """Write the agent's modules, and import the empty root of containers that have no image of their own.

        Raises SandboxError.
        """
        root.copy_modules(self._home / "agent")
        if not self._image:
            self._image = self._import_root()
        elif self.run("image", "inspect", self._image, check=False).returncode:
            raise SandboxError(f"{self.program} has no image {self._image!r}: pull, load or build it first")

    def _import_root(self) -> str:
        """Import directories to mount the machine's programs in; an equal image is used again."""
        packed = io.BytesIO()
        with tempfile.TemporaryDirectory() as place, tarfile.open(fileobj=packed, mode="w") as archive:
            root.write_root(Path(place))
            archive.add(place, ".", filter=_plain)
        name = f"localhost/ostinato-root:{hashlib.sha256(packed.getvalue()).hexdigest()[:16]}"
        if self.run("image", "inspect", name, check=False).returncode:
            self.run("import", "-", name, data=packed.getvalue())
        return name

    def run(
        self, *arguments: str, data: bytes = b"", check: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command of the engine to its end. Raises SandboxError unless it does well, with `check`."""
        try:
            done = subprocess.run(
                [*self._begin(), *arguments],
                input=data,
                capture_output=True,
                timeout=_PATIENCE_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxError(f"{self.program} cannot be run: {error}") from error
        if check and done.returncode:
            said = done.stderr.decode(errors="replace").strip()[-500:]
            raise SandboxError(f"{self.program} {arguments[0]} failed: {said}")
        return done

    def create(self, name: str, spec: Spec, repo_mb: int) -> list[str]:
        """Return the command that runs a sandbox's container until its standard input is closed."""
        disk, tmpfs = spec.limits.disk_mb, "rw,exec,nosuid,nodev"
        user, rights = 1000, ["--userns", "keep-id:uid=1000,gid=1000"]
        if self.own_kernel:
            user, rights = 0, [word for name in _IN_GVISOR for word in ("--cap-add", name)]
        elif os.geteuid() == 0 or self.program != "podman":
            user, rights = _FIRST_USER + secrets.randbelow(10**8), []
        owner = "U" if self.program == "podman" else f"uid={user},gid={user}"
        environment = {} if self._named else command_environment()
        return [
            *self._begin(),
            *("run", "--rm", "--interactive", "--name", name, "--hostname", name[-32:]),
            *("--user", f"{user}:{user}", *rights),
            *(("--runtime", self._runtime) if self._runtime and self.program != "podman" else ()),
            *("--network", "none", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--read-only"),
            *("--log-driver", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"),
            *("--shm-size", f"{disk}m", *self._bounds(spec, repo_mb)),
            *("--tmpfs", f"{rootfs.REPO}:{tmpfs},mode=0755,size={disk + repo_mb}m,{owner}"),
            *("--tmpfs", f"{rootfs.TMP}:{tmpfs},mode=1777,size={disk}m,{owner}"),
            *("--tmpfs", "/run:rw,nosuid,nodev,mode=0755,size=1m"),
            *self._volumes(spec),
            *(word for pair in environment.items() for word in ("--env", "=".join(pair))),
            *("--entrypoint", "", "--workdir", "/", self._image),
            *(root.python_in_image() if self._named else (sys.executable,)),
            *("-I", "-S", "-c", root.START),
        ]

    def _bounds(self, spec: Spec, repo_mb: int) -> Sequence[str]:
        """Return the bounds of the container as a whole, where the machine lets the engine have some."""
        if not self.bounded:
            return ()
        limits = spec.limits
        memory = limits.memory_mb + 2 * limits.disk_mb + repo_mb + _AGENT_MB
        processes = limits.processes + 1
        if self.own_kernel:
            memory, processes = memory + _GVISOR_MB, processes + _GVISOR_THREADS
        return (
            *("--memory", f"{memory}m", "--memory-swap", f"{memory}m"),
            *("--pids-limit", str(processes)),
        )

    @property
    def bounded(self) -> bool:
        """True where the engine can bound the memory and the processes of a whole container."""
        return os.geteuid() == 0 or (UNIFIED and not self.own_kernel)

    @property
    def _named(self) -> bool:
        return not self._image.startswith("localhost/ostinato-root:")

    def _begin(self) -> list[str]:
        if self.program != "podman" or not self._runtime:
            return [self.program]
        flags = ["network=none"] if self.own_kernel else []
        if self.own_kernel and os.geteuid() != 0:
            flags.append("ignore-cgroups")  # gVisor refuses to start where it may not make a group
        return [self.program, "--runtime", self._runtime, *(w for f in flags for w in ("--runtime-flag", f))]

    def _volumes(self, spec: Spec) -> list[str]:
        shown = root.image_binds() if self._named else root.machine_binds()
        pairs = [
            *shown,
            (self._home / "agent", root.AGENT),
            *((mount.source.absolute(), mount.target) for mount in spec.mounts),
        ]
        for source, target in pairs:
            if ":" in f"{source}{target}":
                raise SandboxError(
                    f"{source} cannot be shown in a container: its path has a colon, rename it"
                )
        return [word for source, target in pairs for word in ("--volume", f"{source}:{target}:ro")]


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
