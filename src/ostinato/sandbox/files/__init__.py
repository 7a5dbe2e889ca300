"""The files of a sandbox: trees, layers above a template, and the root file system.

The exam, the guest, egress, the environment and the backends import it; `tree` is used by other rooms, too.
"""
