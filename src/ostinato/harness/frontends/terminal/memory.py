"""Garbage collection in small pieces: one over all of a long story would hold up the keys for 0.1 s."""

import gc


def settle() -> None:
    """Collect what is garbage since the last call, and leave what is in use out of later collections.

    Without this each full collection walks through every line of the story. What is left out and becomes
    garbage is still freed where no cycle keeps it.
    """
    gc.collect()
    gc.freeze()


def unsettle() -> None:
    """Give everything back to the collector, for a process that goes on without the screen."""
    gc.unfreeze()
