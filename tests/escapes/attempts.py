"""Runs inside a sandbox: `python attempts.py FACTS [NAME …]`. Each attempt gives evidence that it got out.

FACTS is a file of JSON about the machine outside (see `conftest.Outside`). Prints one JSON object, name to
evidence or null. Standard library only; nothing here is imported by the tests but the names.
"""

import ctypes
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

Facts = dict[str, Any]
Attempt = Callable[[Facts], object]
ATTEMPTS: dict[str, Attempt] = {}
LIVE: set[str] = set()
"""Attempts that succeed where nothing holds them: run bare, they must give evidence."""
SHARED: set[str] = set()
"""Attempts whose success harms nobody in a kernel of the sandbox's own (gVisor)."""
libc = ctypes.CDLL(None, use_errno=True)
REFUSED = {1, 13, 38}
"""EPERM, EACCES, ENOSYS: any other answer means that the kernel looked at the call."""


def attempt(*, live: bool = False, shared: bool = False) -> Callable[[Attempt], Attempt]:
    def add(function: Attempt) -> Attempt:
        ATTEMPTS[function.__name__] = function
        if live:
            LIVE.add(function.__name__)
        if shared:
            SHARED.add(function.__name__)
        return function

    return add


def text(path: str) -> str:
    return Path(path).read_text(errors="replace")


def holds(facts: Facts, *paths: str) -> object:
    """The secret, if one of the files has it."""
    for path in paths:
        with suppress(OSError):
            if facts["secret"] in text(path):
                return path
    return None


# --- files of the machine


@attempt(live=True)
def read_a_file_by_its_path(facts: Facts) -> object:
    return holds(facts, facts["file"])


@attempt(live=True)
def read_a_file_through_proc(facts: Facts) -> object:
    roots = [f"/proc/{pid}/{what}" for pid in ("1", "self", "2") for what in ("root", "cwd")]
    return holds(facts, *(root + facts["file"] for root in roots))


@attempt(live=True)
def read_a_file_by_climbing(facts: Facts) -> object:
    return holds(facts, *("/".join([".."] * depth) + facts["file"] for depth in range(1, 20)))


@attempt(live=True)
def read_a_file_through_a_link(facts: Facts) -> object:
    link = Path("to-the-outside")
    link.symlink_to(facts["file"])
    try:
        return holds(facts, str(link))
    finally:
        link.unlink()


@attempt()
def read_a_file_through_what_is_mounted(facts: Facts) -> object:
    points = {line.split()[4] for line in text("/proc/self/mountinfo").splitlines()}
    return holds(facts, *(point.rstrip("/") + facts["file"] for point in points), "/.host" + facts["file"])


@attempt()
def leave_a_chroot(facts: Facts) -> object:
    os.makedirs("jail", exist_ok=True)
    with suppress(OSError):
        os.chroot("jail")
        for _ in range(64):
            os.chdir("..")
        os.chroot(".")
    return holds(facts, facts["file"])


@attempt()
def read_the_shadow_file(facts: Facts) -> object:
    with suppress(OSError):
        return text("/etc/shadow") == facts["shadow"] or None
    return None


@attempt()
def read_keys_in_a_home(facts: Facts) -> object:
    return [
        str(path) for home in (facts["home"], "/root", "/home") for path in Path(home).glob("*/.ssh/*")
    ] or None


@attempt()
def read_environments_of_others(facts: Facts) -> object:
    return holds(facts, *map(str, Path("/proc").glob("*/environ")))


@attempt()
def read_a_disk(facts: Facts) -> object:
    found = []
    for path in (
        *Path("/dev").glob("[sv]d*"),
        *Path("/dev").glob("nvme*"),
        Path("/dev/mem"),
        Path("/dev/kmem"),
        Path("/dev/port"),
    ):
        with suppress(OSError):
            os.close(os.open(path, os.O_RDONLY))
            found.append(str(path))
    return found or None


@attempt(shared=True)
def make_a_device(facts: Facts) -> object:
    for kind, number in ((0o060600, (259, 0)), (0o060600, (8, 0)), (0o020600, (1, 1))):
        with suppress(OSError):
            os.mknod("device", kind, os.makedev(*number))
            os.close(os.open("device", os.O_RDWR))
            return "opened"
    return None


@attempt()
def write_outside(facts: Facts) -> object:
    for path in (
        facts["file"],
        facts["folder"] + "/made",
        "/usr/made",
        "/usr/bin/made",
        sys.prefix + "/made",
    ):
        with suppress(OSError):
            Path(path).write_text("made inside")
    return None  # the test looks outside


@attempt()
def write_into_the_pristine_repository(facts: Facts) -> object:
    for path in (facts["repo"], *(str(path) for path in Path("/proc/self/fd").glob("*"))):
        with suppress(OSError):
            Path(path, "made").write_text("made inside")
    return None


# --- network


def reach(kind: int, address: object, family: int = socket.AF_INET) -> object:
    with suppress(OSError), socket.socket(family, kind) as sock:
        sock.settimeout(1.0)
        sock.connect(address)  # type: ignore[arg-type]
        sock.send(b"out")
        if kind == socket.SOCK_DGRAM:
            sock.recv(3)
        return str(address)
    return None


@attempt(live=True)
def reach_the_machine_by_tcp4(facts: Facts) -> object:
    return reach(socket.SOCK_STREAM, ("127.0.0.1", facts["port"]))


@attempt(live=True)
def reach_the_machine_by_tcp6(facts: Facts) -> object:
    return (
        reach(socket.SOCK_STREAM, ("::1", facts["port6"]), socket.AF_INET6)
        if facts["port6"]
        else "no IPv6 outside"
    )


@attempt(live=True)
def reach_the_machine_by_udp(facts: Facts) -> object:
    return reach(socket.SOCK_DGRAM, ("127.0.0.1", facts["udp"]))


@attempt(live=True)
def reach_an_abstract_socket(facts: Facts) -> object:
    return reach(socket.SOCK_STREAM, "\0" + facts["abstract"], socket.AF_UNIX)


@attempt(live=True)
def reach_a_socket_by_its_path(facts: Facts) -> object:
    return reach(socket.SOCK_STREAM, facts["socket"], socket.AF_UNIX)


@attempt()
def reach_the_world(facts: Facts) -> object:
    return reach(socket.SOCK_STREAM, ("1.1.1.1", 53)) or reach(
        socket.SOCK_STREAM, ("2606:4700:4700::1111", 53), socket.AF_INET6
    )


@attempt()
def reach_the_clouds_metadata(facts: Facts) -> object:
    return reach(socket.SOCK_STREAM, ("169.254.169.254", 80))


@attempt()
def resolve_a_name(facts: Facts) -> object:
    with suppress(OSError):
        return socket.getaddrinfo("example.com", 80)
    return None


@attempt()
def reach_the_hypervisor(facts: Facts) -> object:
    with suppress(OSError, AttributeError), socket.socket(socket.AF_VSOCK) as sock:
        sock.settimeout(1.0)
        sock.connect((2, 1024))
        return "connected"
    return None


@attempt(shared=True)
def open_a_raw_socket(facts: Facts) -> object:
    for family, kind, protocol in (
        (socket.AF_INET, socket.SOCK_RAW, 1),
        (socket.AF_PACKET, socket.SOCK_RAW, 0x0300),
    ):
        with suppress(OSError), socket.socket(family, kind, protocol):
            return "opened"
    return None


@attempt(shared=True)
def open_a_socket_of_an_odd_family(facts: Facts) -> object:
    """Bluetooth, CAN, the kernel's ciphers, the hypervisor, XDP …"""
    opened = []
    for family in {*range(3, 48)} - {socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK}:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            with suppress(OSError), socket.socket(family, kind):
                opened.append((family, int(kind)))
    return opened or None


@attempt()
def see_a_network_interface(facts: Facts) -> object:
    return [name for _, name in socket.if_nameindex() if name != "lo"] or None


# --- processes of the machine


@attempt(live=True)
def see_a_process(facts: Facts) -> object:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if facts["secret"] in text(str(path)):
                return str(path)
    return None


@attempt()
def signal_a_process(facts: Facts) -> object:
    for pid in (facts["witness"], facts["runner"], os.getppid(), -1):
        with suppress(OSError):
            os.kill(pid, signal.SIGCONT)
    for pid in (facts["witness"], facts["runner"]):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return None  # the test looks whether the witness lives


@attempt()
def signal_by_a_descriptor(facts: Facts) -> object:
    with suppress(OSError):
        signal.pidfd_send_signal(os.pidfd_open(facts["witness"]), signal.SIGKILL)
    return None


@attempt()
def end_process_one(facts: Facts) -> object:
    with suppress(OSError):
        os.kill(1, signal.SIGKILL)
    time.sleep(0.05)
    return None


@attempt()
def slow_a_process_down(facts: Facts) -> object:
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, facts["witness"], 19)
    with suppress(OSError):
        os.sched_setaffinity(facts["witness"], {0})
    return None  # the test looks at its priority


@attempt(shared=True)
def trace_a_process(facts: Facts) -> object:
    for pid in (facts["witness"], os.getppid(), 1):
        if libc.ptrace(16, pid, 0, 0) == 0:
            return pid
    return None


@attempt(shared=True)
def read_memory_of_process_one(facts: Facts) -> object:
    for what in ("mem", "maps", "environ", "auxv", "fd/0", "cwd"):
        with suppress(OSError):
            os.close(os.open(f"/proc/1/{what}", os.O_RDONLY))
            return what
    return None


@attempt()
def find_shared_memory(facts: Facts) -> object:
    found = libc.shmget(facts["shm"], 0, 0)
    return "attached" if found >= 0 else None


@attempt(shared=True)
def take_what_watches_files_from_others(facts: Facts) -> object:
    """The machine has 128 for all processes of a user."""
    held = []
    while len(held) < 200 and (found := libc.inotify_init1(0)) >= 0:
        held.append(found)
    for each in held:
        os.close(each)
    return len(held) if len(held) > 64 else None


@attempt(shared=True)
def take_timers_from_others(facts: Facts) -> object:
    """Each holds one of the signals that may wait for all processes of a user."""
    held, timer = [], ctypes.c_void_p()
    while len(held) < 5000 and libc.timer_create(1, None, ctypes.byref(timer)) == 0:
        held.append(timer.value)
    for each in held:
        libc.timer_delete(ctypes.c_void_p(each))
    return len(held) if len(held) > 2000 else None


@attempt(shared=True)
def take_signals_from_others(facts: Facts) -> object:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMAX})
    value, count = ctypes.c_void_p(), 0
    while count < 5000 and libc.sigqueue(os.getpid(), int(signal.SIGRTMAX), value) == 0:
        count += 1
    signal.signal(signal.SIGRTMAX, signal.SIG_IGN)  # which drops those that wait
    return count if count > 2000 else None


@attempt()
def read_the_machines_name(facts: Facts) -> object:
    return socket.gethostname() == facts["hostname"] or None


@attempt()
def change_the_machines_name(facts: Facts) -> object:
    with suppress(OSError):
        socket.sethostname("escaped")
    return None  # the test looks at the name


# --- clock and kernel


def call(numbers: tuple[int, int], *arguments: object) -> object:
    """Evidence when the kernel did not simply refuse."""
    number = numbers[platform.machine() == "aarch64"]
    ctypes.set_errno(0)
    result = libc.syscall(number, *arguments)
    if result >= 0:
        return f"answered {result}"
    return None if ctypes.get_errno() in REFUSED else f"reached, error {ctypes.get_errno()}"


CALLS: dict[str, tuple[tuple[int, int], tuple[object, ...]]] = {
    "bpf": ((321, 280), (0, 0, 0)),
    "keyctl": ((250, 219), (0, -3, 1)),
    "add_key": ((248, 217), (b"user", b"name", b"x", 1, -3)),
    "request_key": ((249, 218), (b"user", b"name", 0, 0)),
    "io_uring_setup": ((425, 425), (1, 0)),
    "userfaultfd": ((323, 282), (1,)),
    "perf_event_open": ((298, 241), (0, 0, -1, -1, 0)),
    "kexec_load": ((246, 104), (0, 0, 0, 0)),
    "init_module": ((175, 105), (0, 0, b"")),
    "finit_module": ((313, 273), (-1, b"", 0)),
    "reboot": ((169, 142), (0, 0, 0, 0)),
    "swapon": ((167, 224), (b"/nothing", 0)),
    "open_by_handle_at": ((304, 265), (-1, 0, 0)),
    "process_vm_readv": ((310, 270), (1, 0, 0, 0, 0, 0)),
    "process_vm_writev": ((311, 271), (1, 0, 0, 0, 0, 0)),
    "pidfd_getfd": ((438, 438), (-1, 0, 0)),
    "setns": ((308, 268), (-1, 0)),
    "unshare_user": ((272, 97), (0x10000000,)),
    "unshare_net": ((272, 97), (0x40000000,)),
    "clone_user": ((56, 220), (0x10000000 | 17, 0, 0, 0, 0)),
    "mount": ((165, 40), (b"none", b"/tmp", b"tmpfs", 0, 0)),
    "umount": ((166, 39), (b"/repo", 2)),
    "pivot_root": ((155, 41), (b"/tmp", b"/tmp")),
    "chroot": ((161, 51), (b"/tmp",)),
    "fsopen": ((430, 430), (b"tmpfs", 0)),
    "open_tree": ((428, 428), (-100, b"/", 1)),
    "move_mount": ((429, 429), (-100, b"/", -100, b"/tmp", 0)),
    "mount_setattr": ((442, 442), (-100, b"/", 0, 0, 0)),
    "clock_settime": ((227, 112), (0, (ctypes.c_long * 2)(int(time.time()), 0))),
    "settimeofday": ((164, 170), (0, (ctypes.c_int * 2)(0, 0))),
    "adjtimex": ((159, 171), ((ctypes.c_char * 208)(2),)),
    "syslog": ((103, 116), (3, (ctypes.c_char * 99)(), 99)),
    "acct": ((163, 89), (0,)),
    "quotactl": ((179, 60), (0x800007 << 8, 0, 0, 0)),
    "fanotify_init": ((300, 262), (4, 0)),
    "iopl": ((172, -1), (3,)),
    "ioperm": ((173, -1), (0x70, 2, 1)),
    "vhangup": ((153, 58), ()),
    "lookup_dcookie": ((212, 18), (0, 0, 0)),
    "kcmp": ((312, 272), (1, 1, 0, 0, 0)),
    "move_pages": ((279, 239), (1, 0, 0, 0, 0, 0)),
    "shmget": ((29, 194), (0, 1 << 20, 0o1600)),
    "msgget": ((68, 186), (0, 0o1600)),
    "semget": ((64, 190), (0, 100, 0o1600)),
    "mq_open": ((240, 180), (b"ostinato-attempt", 0o102, 0o600, 0)),
    "socketpair_vsock": ((53, 199), (40, 1, 0, (ctypes.c_int * 2)())),
}
"""Numbers on x86-64 and AArch64, and arguments that do no harm should the call be let through."""


def _calls(name: str) -> Attempt:
    numbers, arguments = CALLS[name]

    def one(_: Facts) -> object:
        child = os.fork()  # what the call does to a process must not reach the other attempts
        if child == 0:
            found = call(numbers, *arguments)
            os._exit(0 if found is None else 1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return None if status in (0, -signal.SIGSYS) else f"let through ({status})"

    one.__name__ = f"call_{name}"
    return one


for _name in CALLS:
    attempt(shared=True)(_calls(_name))


def written(*paths: str) -> object:
    for path in paths:
        with suppress(OSError):
            fd = os.open(path, os.O_WRONLY)
            os.close(fd)  # to be able to is enough: nothing is written
            return path
    return None


@attempt(shared=True)
def pull_the_emergency_levers(facts: Facts) -> object:
    return written("/proc/sysrq-trigger", "/dev/kmsg", "/dev/mem", "/dev/watchdog", "/proc/kcore")


@attempt(shared=True)
def change_settings_of_the_kernel(facts: Facts) -> object:
    below = (
        "kernel/core_pattern",
        "kernel/hostname",
        "kernel/modprobe",
        "vm/drop_caches",
        "net/ipv4/ip_forward",
    )
    return written(*(f"/proc/sys/{name}" for name in below), "/sys/kernel/uevent_helper", "/sys/power/state")


@attempt(shared=True)
def look_into_the_kernel(facts: Facts) -> object:
    for path in (
        "/sys/kernel/debug",
        "/sys/kernel/tracing",
        "/sys/fs/bpf",
        "/sys/fs/cgroup/cgroup.procs",
        "/proc/kcore",
    ):
        with suppress(OSError):
            if Path(path).is_dir() and os.listdir(path):
                return path
    return None


@attempt(shared=True)
def leave_the_control_group(facts: Facts) -> object:
    return (
        written(*map(str, Path("/sys/fs/cgroup").glob("**/cgroup.procs")))
        if Path("/sys/fs/cgroup").is_dir()
        else None
    )


@attempt(shared=True)
def use_programs_of_root(facts: Facts) -> object:
    for command in ("su -c id", "mount -t tmpfs x /tmp", "sudo -n id", "newuidmap 1 0 0 1", "pkexec id"):
        if (
            subprocess.run(
                ["/bin/sh", "-c", command], capture_output=True, check=False, stdin=subprocess.DEVNULL
            ).returncode
            == 0
        ):
            return command
    return None


@attempt(shared=True)
def become_root(facts: Facts) -> object:
    for change in (os.setgid, os.setuid):
        with suppress(OSError):
            change(0)
            return "became"
    return None


@attempt(shared=True)
def hold_a_capability(facts: Facts) -> object:
    held = [
        line
        for line in text("/proc/self/status").splitlines()
        if line.startswith(("CapEff", "CapPrm", "CapBnd"))
    ]
    return [line for line in held if int(line.split()[1], 16)] or None


@attempt(shared=True)
def gain_privileges_by_a_new_program(facts: Facts) -> object:
    return None if "NoNewPrivs:\t1" in text("/proc/self/status") else "allowed"


@attempt()
def put_words_into_a_terminal(facts: Facts) -> object:
    import fcntl

    for fd in (0, 1, 2):
        with suppress(OSError):
            fcntl.ioctl(fd, 0x5412, b"x")
            return fd
    with suppress(OSError):
        os.close(os.open("/dev/tty", os.O_RDWR))
        return "/dev/tty"
    return None


@attempt()
def stay_behind(facts: Facts) -> object:
    """A daemon that keeps its name: the test looks for it after the end."""
    code = "import sys, time; time.sleep(600)"
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c", code, facts["marker"]])
        os._exit(0)
    os.wait()
    return None


def main(facts: Facts, names: list[str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in names or list(ATTEMPTS):
        try:
            found[name] = ATTEMPTS[name](facts)
        except Exception:
            found[name] = None  # it broke on what it was denied
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(json.loads(text(sys.argv[1])), sys.argv[2:])))
