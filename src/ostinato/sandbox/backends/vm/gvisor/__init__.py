"""Sandboxes behind gVisor, a kernel in user space: no root, no hardware, memory in its snapshots."""
