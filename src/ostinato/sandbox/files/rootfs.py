"""The root file system of sandboxes: built once by the zygote, finished in each sandbox.

zygote, once: a tmpfs as root                     each sandbox, in its own namespaces
  /usr /bin /lib… ─┐                                /.scratch  tmpfs of `disk_mb`: upper, work, tmp
  the Python in use├ read-only binds                /repo      overlay: pristine repo below, upper above
  /etc: a few files┘                                /tmp       from /.scratch
  /dev: null zero full random urandom               /proc      of its own pid namespace, read-only
  /.host: all of the machine ────────────────────►  /.host     unmounted before any command runs

A Python that is installed somewhere below /tmp stays visible there, read-only.
"""

import os
import site
import sys
from pathlib import Path

from ostinato.sandbox.base import DEFAULT_LIMITS, Image, Mount, SandboxError
from ostinato.sandbox.files import image_root, layer_restore
from ostinato.sandbox.linux import syscalls
from ostinato.sandbox.protocol.order import Order

REPO, HOST, SCRATCH, TMP, EXAM = "/repo", "/.host", "/.scratch", "/tmp", "/.exam"  # noqa: S108
TRUST = "/run/ostinato/ca.pem"
"""The certificates that a sandbox with egress trusts."""
TRUSTED = ("ssl/certs/ca-certificates.crt", "ssl/cert.pem", "pki/tls/certs/ca-bundle.crt")
"""The places in /etc where programs look for certificates."""
MOUNTABLE = ("/mnt", "/run")
"""The directories below which `Spec.mounts` may be."""
_QUOTAS = {"max_inotify_instances": 16, "max_inotify_watches": 8192, "max_user_namespaces": 0}
"""The limits of a sandbox's own user namespace. The machine's count the first two for all of a user's
processes together, and by default allow 128 instances."""
_RESERVED_PIDS = 300
"""The kernel keeps the first 300 for a fresh namespace, and refuses a smaller bound."""
_BOUNDS_PIDS = tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (6, 14)
"""True where a pid namespace has a bound of its own; on older kernels it is the whole machine's."""
_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_USER = "agent:x:1000:1000::/tmp:/bin/sh\n"
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1"} | {
    "stderr": "/proc/self/fd/2",
    "shm": "/tmp",  # noqa: S108
}


def build_root() -> None:
    """Enter a user and a mount namespace and replace the root; the old one remains at /.host.

    The next child of this process is process 1 of a new pid namespace.
    """
    user, group = os.getuid(), os.getgid()
    syscalls.unshare(syscalls.NEW_USER | syscalls.NEW_MOUNT | syscalls.NEW_PID)
    map_user("/proc/self", (0, user), (0, group))
    syscalls.mount("none", "/", "none", syscalls.PRIVATE | syscalls.RECURSIVE)
    syscalls.mount("tmpfs", TMP, "tmpfs", syscalls.NOSUID, "mode=755")
    Path(TMP + HOST).mkdir()
    syscalls.pivot_root(TMP, TMP + HOST)
    os.chdir("/")
    for name in (REPO, SCRATCH, TMP, EXAM, *MOUNTABLE, "/proc", "/dev", "/etc"):
        Path(name).mkdir()
    for path in shown():
        _show(path)
    _make_devices()
    write_identity(Path("/etc"))
    syscalls.seal("/")


def shown() -> list[str]:
    """Return the paths of the machine that a sandbox sees, read-only."""
    return [*(f"/{name}" for name in _SYSTEM), *python_prefixes(), *(f"/etc/{name}" for name in ETC)]


def write_identity(etc: Path) -> None:
    """Write the files of /etc about users, hosts, the machine's identity and trusted certificates."""
    (etc / "passwd").write_text(_USER)
    (etc / "group").write_text("agent:x:1000:\n")
    (etc / "hosts").write_text("127.0.0.1 localhost\n")
    (etc / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    # each sandbox, forks included, has its own host name, which so becomes its machine identity, too
    (etc / "machine-id").symlink_to("/proc/sys/kernel/hostname")
    # programs look for certificates at these places; the file exists only with egress (see `egress.route`)
    for place in TRUSTED:
        (etc / place).parent.mkdir(parents=True, exist_ok=True)
        (etc / place).symlink_to(TRUST)


def _name_host(name: str) -> None:
    """Let the sandbox resolve its own name, by a host file above the one that all sandboxes share."""
    Path(SCRATCH, "hosts").write_text(f"127.0.0.1 localhost {name}\n")
    syscalls.mount(f"{SCRATCH}/hosts", "/etc/hosts", "none", syscalls.BIND)
    syscalls.seal("/etc/hosts")


def map_user(process: str, user: tuple[int, int], group: tuple[int, int]) -> None:
    """Write the maps of a fresh user namespace, each a pair of an id inside and the id outside.

    `process` is the /proc directory of a process in the namespace.
    """
    syscalls.write(f"{process}/setgroups", "deny")
    syscalls.write(f"{process}/uid_map", f"{user[0]} {user[1]} 1")
    syscalls.write(f"{process}/gid_map", f"{group[0]} {group[1]} 1")


def python_prefixes() -> list[str]:
    """Return the directories of the interpreter and its packages, the only ones of a home that are shown.

    Raises RuntimeError when one of them is at a path that a sandbox uses for something else.
    """
    prefixes = {sys.prefix, sys.base_prefix, *site.getsitepackages()}
    for path in sorted(prefixes):
        if path.startswith((f"{REPO}/", f"{SCRATCH}/")) or path == REPO:
            raise RuntimeError(f"Python is installed at {path}, which sandboxes use: install it elsewhere")
    return sorted(path for path in prefixes if not path.startswith("/usr/") and path != "/usr")


def _show(path: str) -> None:
    """Bind `path` of the machine at the same path; a link stays a link, a missing path is left out."""
    source, target = Path(HOST + path), Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.symlink_to(source.readlink())
    elif source.is_dir():
        target.mkdir(exist_ok=True)
        syscalls.mount(str(source), path, "none", syscalls.BIND | syscalls.RECURSIVE)
    elif source.exists():
        target.touch()
        syscalls.mount(str(source), path, "none", syscalls.BIND)


def _make_devices() -> None:
    for name in _DEVICES:
        _show(f"/dev/{name}")
    for name, target in _LINKS.items():
        Path("/dev", name).symlink_to(target)


def prepare() -> None:
    """Prepare the root of one sandbox, in its fresh namespaces, as far as it is the same for all."""
    syscalls.raise_loopback()
    syscalls.mount("tmpfs", SCRATCH, "tmpfs", syscalls.NOSUID | syscalls.NODEV, _size(DEFAULT_LIMITS.disk_mb))
    for name, mode in (("upper", 0o755), ("work", 0o755), ("tmp", 0o1777), ("proc", 0o555)):
        os.mkdir(f"{SCRATCH}/{name}", mode)  # noqa: PTH102
    cover_tmp(SCRATCH + TMP)
    syscalls.mount("proc", f"{SCRATCH}/proc", "proc", syscalls.NOSUID | syscalls.NODEV | syscalls.NOEXEC)
    _limit_pids(DEFAULT_LIMITS.processes)
    syscalls.mount(f"{SCRATCH}/proc", "/proc", "none", syscalls.BIND)
    syscalls.seal("/proc")


def enter(order: Order, base: int | None) -> tuple[int, int]:
    """Finish the root of one sandbox for its order, and enter a user namespace of its own.

    `base` is an open layer to start from. Return open directories of the pristine repository and of the
    upper layer. Raises OSError, SandboxError.
    """
    limits = order.limits
    if limits.disk_mb != DEFAULT_LIMITS.disk_mb:
        syscalls.mount("tmpfs", SCRATCH, "tmpfs", syscalls.REMOUNT, _size(limits.disk_mb))
    if limits.processes != DEFAULT_LIMITS.processes:
        _limit_pids(limits.processes)
    if base is not None:
        layer_restore.unpack(base, {"repo": f"{SCRATCH}/upper", "tmp": f"{SCRATCH}{TMP}"}, overlay=True)
    lower, upper = _mount_repository(order.repo)
    _mount_more(order.mounts)
    image = _assemble(*order.image) if order.image is not None else None
    process = os.open(f"{SCRATCH}/proc/1", os.O_PATH | os.O_CLOEXEC)
    quotas = os.open(f"{SCRATCH}/proc/sys/user", os.O_PATH | os.O_CLOEXEC)
    if image is None:
        _name_host(order.id)
        syscalls.unmount(SCRATCH)
        syscalls.unmount(HOST)
    else:
        _change_root(image)
    syscalls.unshare(syscalls.NEW_USER)
    map_user(f"/proc/self/fd/{process}", (1000, 0), (1000, 0))
    for name, most in _QUOTAS.items():
        syscalls.write(f"/proc/self/fd/{quotas}/{name}", str(most))
    for each in (process, quotas):
        os.close(each)
    return lower, upper


def _assemble(image: str, workdir: str) -> str:
    shown = (REPO, "/proc", "/dev", TMP, *MOUNTABLE)
    return image_root.assemble(HOST + image, SCRATCH, shown, workdir, ",userxattr")


def _change_root(image: str) -> None:
    """Make `image` the root; the old one, with all of the machine, is gone before any command runs."""
    syscalls.pivot_root(image, image_root.directory(image, HOST))
    os.chdir("/")
    syscalls.unmount(HOST)
    os.rmdir(HOST)  # noqa: PTH106
    image_root.identify(TRUST, TRUSTED)


def _size(disk_mb: int) -> str:
    return f"size={disk_mb}m,nr_inodes=16384,mode=755"


def _mount_more(mounts: tuple[tuple[str, str], ...]) -> None:
    """Bind the order's mounts, read-only, below /mnt and /run, in which nothing else is shown."""
    for top in sorted({f"/{target.split('/')[1]}" for _, target in mounts}):
        syscalls.mount("tmpfs", top, "tmpfs", syscalls.NOSUID | syscalls.NODEV, "size=1m,mode=755")
    for source, target in mounts:
        place = Path(target)
        place.parent.mkdir(parents=True, exist_ok=True)
        if Path(HOST + source).is_dir():
            place.mkdir(exist_ok=True)
        else:
            place.touch()
        syscalls.mount(HOST + source, target, "none", syscalls.BIND | syscalls.RECURSIVE)
    for top in sorted({f"/{target.split('/')[1]}" for _, target in mounts}):
        syscalls.seal(top)


def cover_tmp(directory: str) -> None:
    """Make an empty `directory` the /tmp of this mount namespace; mounts of the zygote in /tmp stay."""
    for name in os.listdir(TMP):  # noqa: PTH208
        os.makedirs(f"{directory}/{name}", exist_ok=True)  # noqa: PTH103
        syscalls.mount(f"{TMP}/{name}", f"{directory}/{name}", "none", syscalls.BIND | syscalls.RECURSIVE)
    syscalls.mount(directory, TMP, "none", syscalls.BIND | syscalls.RECURSIVE)


def _mount_repository(repo: str) -> tuple[int, int]:
    syscalls.mount(f"{HOST}{repo}", REPO, "none", syscalls.BIND)
    lower = os.open(REPO, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    # a path of the sandbox as the lower layer: so /proc/mounts shows no path of the machine
    layers = f"lowerdir={REPO},upperdir={SCRATCH}/upper,workdir={SCRATCH}/work,userxattr"
    syscalls.mount("overlay", REPO, "overlay", syscalls.NOSUID | syscalls.NODEV, layers)
    return lower, os.open(f"{SCRATCH}/upper", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _limit_pids(processes: int) -> None:
    """Bound the processes of the pid namespace, where it can be (see `_BOUNDS_PIDS`).

    RLIMIT_NPROC does not bind processes of the machine's root.
    """
    if _BOUNDS_PIDS:
        syscalls.write(f"{SCRATCH}/proc/sys/kernel/pid_max", str(_RESERVED_PIDS + processes))


def check_image(image: Image) -> None:
    """Check that an image is there and its working directory can be one; raises SandboxError otherwise."""
    if not (image.root / "bin").is_dir():
        raise SandboxError(f"{image.root} is no image, it has no /bin: `ostinato tasks build` unpacks one")
    parts = image.workdir.split("/")
    taken = {"proc", "dev", *(path[1:] for path in (SCRATCH, HOST, EXAM, TMP, *MOUNTABLE))}
    if parts[0] != "" or ".." in parts or "." in parts or "\0" in image.workdir or parts[1] in taken:
        raise SandboxError(f"{image.workdir!r} cannot be an image's working directory: name another")


def check_mount(mount: Mount) -> None:
    """Check that a mount's source exists and its target is allowed; raises SandboxError otherwise."""
    _, top, *below = [*mount.target.split("/"), ""]
    parts = below[:-1]
    odd = any(part in ("", ".", "..") or "\0" in part for part in parts)
    if f"/{top}" not in MOUNTABLE or not parts or odd:
        places = " or ".join(MOUNTABLE)
        raise SandboxError(f"{mount.target!r} cannot be mounted: name a path below {places}")
    if not mount.source.exists():
        raise SandboxError(f"{mount.source} cannot be mounted at {mount.target}: there is no such file")
