"""Tasks in the background: the agent works for hours without a terminal, and reports at its end.

::

    start ─► a process of its own, in a copy of the person's files ─► report ─► take | drop
"""
