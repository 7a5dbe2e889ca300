"""The half of the pipelined cycle that people meet: one trial at a time, beside the cycles.

A cycle hands its candidate over by its result in the run folder. Only `loop.cycle` comes in.
"""
