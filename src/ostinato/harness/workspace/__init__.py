"""A person's working tree: checkpoints, undo, the edit journal, and the workbench.

The frontends come in.
"""
