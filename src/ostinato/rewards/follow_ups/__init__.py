"""Follow-ups: what a developer says to the agent after it worked, read for dissatisfaction. `loop` and `cli`
come in.
"""
