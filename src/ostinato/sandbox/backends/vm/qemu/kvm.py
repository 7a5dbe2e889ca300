"""Finds out whether KVM is fast here, by running a loop in a guest's kernel mode.

The existence of /dev/kvm is not enough. On some machines it opens, but runs a guest's kernel at a thousandth
of the speed (page-table virtualisation without an enlightened guest). QEMU's own translation is faster there.
"""

import ctypes
import fcntl
import mmap
import os
import struct
import subprocess
import sys
from functools import cache

_LOOPS = 50_000_000
_LIMIT_S = 2.0
"""The time limit, which includes Python's start; a processor itself runs the loop in hundredths of it."""
_CREATE_VM, _MMAP_SIZE, _CREATE_VCPU = 0xAE01, 0xAE04, 0xAE41
_SET_MEMORY, _RUN, _SET_REGISTERS = 0x4020AE46, 0xAE80, 0x4090AE82
_GET_SPECIAL, _SET_SPECIAL, _SPECIAL_BYTES = 0x8138AE83, 0x4138AE84, 0x138
_HALTED = 5
_CODE = bytes.fromhex("6649 75fc f4")  # dec ecx; jnz back; hlt
_BYTES, _ORIGIN = 1 << 16, 0x1000


@cache
def kvm_runs() -> bool:
    """True when a guest's kernel runs at the processor's speed."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__], timeout=_LIMIT_S, capture_output=True, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main() -> None:
    """Run the loop in a machine made of one processor in real mode and one page of code."""
    kvm = os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC)
    vm = fcntl.ioctl(kvm, _CREATE_VM, 0)
    memory = mmap.mmap(-1, _BYTES)
    memory[_ORIGIN : _ORIGIN + len(_CODE)] = _CODE
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    fcntl.ioctl(vm, _SET_MEMORY, struct.pack("=IIQQQ", 0, 0, 0, _BYTES, address))
    vcpu = fcntl.ioctl(vm, _CREATE_VCPU, 0)
    state = mmap.mmap(vcpu, fcntl.ioctl(kvm, _MMAP_SIZE, 0))
    special = bytearray(fcntl.ioctl(vcpu, _GET_SPECIAL, bytes(_SPECIAL_BYTES)))
    struct.pack_into("=QIH", special, 0, 0, 0xFFFF, 0)  # the code segment begins at 0
    fcntl.ioctl(vcpu, _SET_SPECIAL, bytes(special))
    registers = [0, 0, _LOOPS, *[0] * 13, _ORIGIN, 2]
    fcntl.ioctl(vcpu, _SET_REGISTERS, struct.pack("=18Q", *registers))
    fcntl.ioctl(vcpu, _RUN, 0)
    (reason,) = struct.unpack_from("=I", state, 8)
    sys.exit(0 if reason == _HALTED else f"the loop ended for reason {reason}, not halted")


if __name__ == "__main__":
    main()
