"""What people are served beside what the model is trained and measured in: one list, and the gate's word.

Only `loop.cycle`, `loop.pipeline` and the command line come in.
"""
