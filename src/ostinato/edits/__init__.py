"""The fate of an agent's edits, read from the repository in which they were made.

::

    an agent's tool call ─► `ostinato hook` ─► inbox ─┐         below .git/ostinato, never in the work tree
    git commit, rebase, checkout ─► git hook ─────────┤
                                                      ▼
                     reporter: propose ─► measure at 0 s … 7 days, at commit ─► journal ─► gateway
                                               │                                  │
                                   where are the lines? (align, locate)       traces (Agent Trace)

The command line enters by `capture.hook_command` and `install.commands`. `loop` reads the trees at the start
of sessions by `capture.starts`. Nothing else is imported from outside.
"""
