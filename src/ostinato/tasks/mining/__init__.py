"""Mining: from somebody's repository to tasks, as far as nothing of it has to run.

Archives are read, faults injected, instructions and task directories written here. The code of a repository
runs in a sandbox, by the program in `probe.py`, which `loop.mining` starts there.
"""
