"""Sandboxes of Linux namespaces, or of Landlock where those are blocked, forked from one warm zygote."""
