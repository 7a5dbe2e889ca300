"""The witness: what installed libraries do to the machinery when nothing of a candidate is there.

Importing torch replaces `inspect.getfile`, for example. The witness loads such a library in a sandbox without
the repository and reports the same changes as a run would, so that the verifier can compare.
"""

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

from ostinato.sandbox.exam.guarded.inside.watch import Memory, TamperWatch


def run(plan: dict[str, Any], send: Callable[[dict[str, Any]], None], memory: Memory | None = None) -> None:
    """Load the `modules` of a plan, in turn, and report each name of the machinery that they changed."""
    import pytest  # noqa: F401 - a part of the machinery, as in a run

    watch = TamperWatch({}, (), send, memory)
    watch.begin()
    send({"begun": True})
    for name in plan["modules"]:
        with contextlib.suppress(Exception):  # one that cannot be loaded is no excuse
            importlib.import_module(name)
    watch.check()
    send({"done": True})
