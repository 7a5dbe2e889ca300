"""The engine of this process: a scheduler over static slots, and a forward pass in torch or in C.

Other folders come in by `engine.py`; tests and benchmarks also use the parts.
"""
