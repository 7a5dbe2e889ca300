"""Sandboxes that are virtual machines of QEMU: forks share the template's memory until it is written."""
