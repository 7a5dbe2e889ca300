"""The stages of a run, one file each, with the trainers and the problems that they share.

Only `loop.pipeline`, `loop.cycle` and the command line come in.
"""
