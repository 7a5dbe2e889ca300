"""From a task's directory, or a repository at a commit, to a template that every sandbox of it starts from.

    source ──scrub──► files ──one commit──► repo ─┐
    requirements ──recorded wheels──► deps        ├──digest──► store/DIGEST, written once ──► Spec
    toolchain ──checked──► needs ─────────────────┘

The same source gives the same digest on every machine; what is in the store is checked against it when it is
used.
"""

from ostinato.sandbox.environment.template import Template, build, load

__all__ = ["Template", "build", "load"]
