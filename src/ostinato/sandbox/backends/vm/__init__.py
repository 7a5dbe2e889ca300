"""Sandboxes with a kernel of their own, by one of two engines: gVisor or QEMU."""
