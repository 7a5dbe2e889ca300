"""The examples in the docstrings of every module are true."""

import contextlib
import doctest
import importlib
import io

from tests.arrows import modules

PROGRAMS = {"__main__"}
"""Modules that do their work when they are imported."""
WITHOUT = {"ray", "vllm", "k8s_agent_sandbox", "kubernetes_asyncio"}
"""Packages of extras that the other tests do without; a module that needs one is not imported here."""


def test_every_example_holds() -> None:
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        failed = [name for name in modules() if name.startswith("ostinato") and _failures(name)]
    assert not failed, told.getvalue()


def _failures(name: str) -> int:
    if name.rpartition(".")[2] in PROGRAMS:
        return 0
    try:
        module = importlib.import_module(name)
    except Exception as error:
        missing = error if isinstance(error, ModuleNotFoundError) else error.__cause__
        if isinstance(missing, ModuleNotFoundError) and (missing.name or "").partition(".")[0] in WITHOUT:
            return 0
        raise
    return doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed
