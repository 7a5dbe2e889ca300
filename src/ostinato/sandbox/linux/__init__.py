"""Linux as this room needs it: system calls, cgroups, Landlock and processes.

Every folder of the room but `protocol` may come in; nothing here knows what a sandbox is.
"""
