"""The files of a sandbox: trees, layers above a template, snapshots, and the root file system it sees.

The exam, the guest, egress and the backends come in.
"""
