"""The choice of a base model by three instruments: fresh knowledge, state tracking, loss of a codebase.

Scores of coding agents are left out on purpose: practice changes them most. The command in `loop` comes in.
"""
