"""The records of a chain of weights in the object store: keys, manifests, epochs, leases, and paths between
versions.

Readers, writers, the mirror and the collector build on them; nothing here reads or writes a tensor.
"""
