"""The programs that run a task's own test suite inside a sandbox and report to the verifier outside.

They travel as text, so a sandbox needs nothing of ostinato: these files import the standard library, the test
runner and each other alone. `exam/guarded` sends them and reads their reports; `sandbox/guest` knows their
command, to start it in a fork.
"""
