"""A place without any network but loopback, since nothing that a client sends may leave the machine."""

import fcntl
import os
import shutil
import socket
import struct
import subprocess
from typing import NoReturn

GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 1  # linux/sockios.h, net/if.h
NAMESPACES = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]


def execute_alone(command: list[str]) -> NoReturn:
    """Become `command`, in namespaces of its own where the machine can make them.

    The namespace of processes ends with the command, and with it the daemons that some clients leave behind.
    """
    able = shutil.which("unshare") and not subprocess.run([*NAMESPACES, "true"], check=False).returncode
    command = [*NAMESPACES, *command] if able else command
    os.execvp(command[0], command)


def is_alone() -> bool:
    """Return whether there is no network but loopback, which is brought up."""
    if [name for _, name in socket.if_nameindex()] != ["lo"]:
        return False
    with socket.socket() as probe:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(probe, GET_FLAGS, request))[1]
        fcntl.ioctl(probe, SET_FLAGS, struct.pack("16sh14x", b"lo", flags | UP))
    return True
