"""Mining at work: repositories run in sandboxes, tasks that told before from after are written.

The command line and the benchmark come in. What needs no sandbox lies in `tasks.mining`.
"""
