"""Sandboxes of Linux namespaces, or of Landlock where namespaces are blocked, forked from one zygote."""
