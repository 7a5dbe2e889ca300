"""Transparent egress inside a sandbox: every connection of a program is redirected to the proxy.

    program ──TCP to anywhere──► nat: redirect ──► 127.0.0.1:3128 TCP ─┐ both sockets are passed out,
            ──DNS to anyone────► nat: redirect ──► 127.0.0.1:3128 UDP ─┴► as by `listener` ──► Proxy
            ──its own loopback─► unchanged
            ──anything else────► filter: drop

All of it lies in the sandbox's own network, which has one interface, the loopback, and no way to any other.
The rules are set in nftables before the sandbox gives up its rights. The namespace belongs to a user
namespace above the sandbox's own, so that no process inside can change them.
"""

import os
import shutil
import socket
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path

from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.egress.listener import HOST, PORT, receive_sockets
from ostinato.sandbox.linux import syscalls

MAX_NEW_PER_S, MAX_AT_ONCE = 500, 1000
"""Limits for redirected connections and DNS queries; more are dropped. The kernel remembers each for up to
two minutes, and the proxy's process serves other sandboxes too."""
ADVICE = (
    "install nftables (on Debian apt-get install nftables) on a kernel with nf_tables, nat and redirect; or "
    "leave `transparent` off: programs then find a proxy in HTTP_PROXY"
)
RULES = f"""
table inet ostinato {{
    chain own {{
        type filter hook output priority -300; policy accept;
        meta nfproto ipv4 meta l4proto {{ tcp, udp }} th dport 53 accept
        meta nfproto ipv4 meta l4proto {{ tcp, udp }} th sport {PORT} accept
        ip daddr 127.0.0.0/8 notrack
        ip6 daddr ::1 notrack
    }}
    chain turn {{
        type nat hook output priority -100; policy accept;
        meta nfproto ipv4 meta l4proto {{ tcp, udp }} th dport 53 redirect to :{PORT}
        ip daddr != 127.0.0.0/8 meta l4proto tcp redirect to :{PORT}
    }}
    chain leave {{
        type filter hook output priority 0; policy drop;
        ct state new limit rate over {MAX_NEW_PER_S}/second burst {MAX_AT_ONCE} packets drop
        ip daddr 127.0.0.0/8 accept
        ip6 daddr ::1 accept
    }}
}}
"""
_PATH = "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin"
_PATIENCE_S = 30.0
_ORIGINAL = 80
"""SO_ORIGINAL_DST, the same for IPv4 on every architecture."""
_NEW_ROUTE, _WANTED = 24, 0x605
"""RTM_NEWROUTE; request, acknowledge, create, exclusive."""
_ROUTE = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 3, 253, 1, 0)
"""A route to anywhere: in the main table, protocol boot, link scope, unicast."""
_LOOPBACK = 1
"""The index of `lo` in every network namespace."""


def open_listener(channel: int) -> None:
    """Set the rules, open both sockets and send them through `channel`.

    To be called in a fresh network namespace with its capabilities and loopback up. Raises OSError,
    SandboxError.
    """
    with socket.socket() as listener, socket.socket(type=socket.SOCK_DGRAM) as names:
        for each in (listener, names):
            each.bind((HOST, PORT))
        listener.listen(64)
        _route_to_loopback()
        _set_rules()
        with socket.socket(fileno=os.dup(channel)) as out:
            socket.send_fds(out, [b"."], [listener.fileno(), names.fileno()])


def take(channel: socket.socket) -> tuple[socket.socket, socket.socket]:
    """Return the sockets for connections and for DNS queries; see `receive_sockets`."""
    listener, names = receive_sockets(channel, 2)
    return listener, names


def original_destination(connection: socket.socket) -> tuple[str, int]:
    """Return the address and port to which a redirected connection was made. Raises OSError."""
    _, port, address, _ = struct.unpack("=H2s4s8s", connection.getsockopt(socket.SOL_IP, _ORIGINAL, 16))
    return socket.inet_ntoa(address), int.from_bytes(port, "big")


def _route_to_loopback() -> None:
    """Add a route, since packets without one could not be redirected and would be dropped."""
    attributes = struct.pack("=HHI", 8, 4, _LOOPBACK) + struct.pack("=HH4s", 8, 7, socket.inet_aton(HOST))
    body = _ROUTE + attributes
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(body), _NEW_ROUTE, _WANTED, 1, 0) + body)
        (error,) = struct.unpack_from("=i", kernel.recv(4096), 16)
    if error:
        raise OSError(-error, f"a route to the loopback: {os.strerror(-error)}")


def _set_rules() -> None:
    program = shutil.which("nft", path=_PATH)
    if program is None:
        raise SandboxError(f"there is no nft: {ADVICE}")
    done = _run([program, "-f", "-"], RULES)
    if done.returncode != 0:
        raise SandboxError(f"nft refused the rules: {done.stderr.strip()[:300] or 'without a reason'}")


def _run(command: list[str], text: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a command. Raises SandboxError when it does not end."""
    try:
        return subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise SandboxError(f"{command[0]} did not end within {_PATIENCE_S:.0f} s") from error


@cache
def missing() -> str:
    """Return why this machine cannot redirect connections; empty if a trial redirected one."""
    if sys.platform != "linux" or shutil.which("nft", path=_PATH) is None:
        return "there is no nft"
    try:
        done = _run([sys.executable, "-m", "ostinato.sandbox.egress.transparent"])
    except SandboxError as error:
        return str(error)
    return (
        ""
        if done.returncode == 0
        else done.stderr.strip().rpartition("\n")[2] or "it ended without a message"
    )


def _try() -> None:
    """Try redirection in this process, which must do nothing else, and check that a connection arrives."""
    user, group = os.getuid(), os.getgid()
    syscalls.unshare(syscalls.NEW_USER | syscalls.NEW_NET)
    for name, line in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        Path("/proc/self", name).write_text(line)
    syscalls.raise_loopback()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        open_listener(theirs.fileno())
        listener, names = take(ours)
    with listener, names:
        _check(listener, names)


def _check(listener: socket.socket, names: socket.socket) -> None:
    listener.settimeout(_PATIENCE_S)
    names.settimeout(_PATIENCE_S)
    wanted = ("192.0.2.1", 443)
    with socket.create_connection(wanted, _PATIENCE_S), listener.accept()[0] as arrived:
        if original_destination(arrived) != wanted:
            sys.exit(f"a connection to {wanted} arrived as one to {original_destination(arrived)}")
    with socket.socket(type=socket.SOCK_DGRAM) as any_socket:
        any_socket.sendto(b"name?", ("192.0.2.1", 53))
        names.recv(5)
        try:
            any_socket.sendto(b"out!", ("192.0.2.1", 54))
        except PermissionError:
            return
    sys.exit("a packet that should be dropped was sent")


if __name__ == "__main__":
    _try()
