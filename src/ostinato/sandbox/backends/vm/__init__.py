"""Sandboxes with a kernel of their own, over the engines gVisor and QEMU."""
