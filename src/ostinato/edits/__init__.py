"""The fate of an agent's edits, as the repository they were made in shows it.

::

    an agent's tool call ─► `ostinato hook` ─► inbox ─┐         below .git/ostinato, never in the work tree
    git commit, rebase, checkout ─► git hook ─────────┤
                                                      ▼
                     reporter: propose ─► measure at 0 s … 7 days, at commit ─► journal ─► gateway
                                               │                                  │
                                   where did the lines go? (align, find)      traces (Agent Trace)
"""
