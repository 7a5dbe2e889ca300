"""The implementations of `sandbox.base.Backend`, one folder each, and the parts they share.

Only `sandbox.choose` and `sandbox.doctor` import them, and rooms that want `ProcessBackend` itself; a backend
may import every other folder of `sandbox`.
"""
