"""Linux as sandboxes need it: system calls, cgroups, Landlock and processes.

Every other folder of `sandbox` but `protocol` may import it; nothing here knows what a sandbox is.
"""
