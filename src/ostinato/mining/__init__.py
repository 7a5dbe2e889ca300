"""Mining: from somebody's repositories and recorded sessions to tasks that their own tests check.

The command line, the loop's suites and the benchmarks come in. Archives and histories are read here, and
faults injected. The code of a repository runs in sandboxes alone, by the program in `probe.py`.
"""
