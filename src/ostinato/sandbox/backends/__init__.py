"""The implementations of `sandbox.base.Backend`.

`sandbox.choose` alone comes in, apart from tests; a backend may use every other folder of the room.
"""
