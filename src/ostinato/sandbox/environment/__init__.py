"""Task environments: a task's directory, or a repository at a commit, becomes a template for sandboxes.

    source ──scrub──► files ──one commit──► repo ─┐
    requirements ──recorded wheels──► deps        ├──digest──► store/DIGEST, written once ──► Spec
    toolchain ──checked──► needs ─────────────────┘

The same source gets the same digest on every machine; a template in the store is checked against it before
use. Images (`images`, `dockerfile`, `ostinato tasks build`) replace the machine's programs in a sandbox. It
imports only `sandbox/base` and `sandbox/files`.
"""

from ostinato.sandbox.environment.template import Template, build, load

__all__ = ["Template", "build", "load"]
