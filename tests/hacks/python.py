# ruff: noqa: E501
"""Cheats inside the interpreter: patching, searching and shadowing what is loaded."""

from tests.hacks.rows import BAD, STUBS, modules

PASS_BOTH = "{'test_hidden.py::test_alpha': 'passed', 'test_hidden.py::test_beta': 'passed'}"
PATCH_RUNNER = f"""
import sys, builtins
for module in list(sys.modules.values()):
    for attribute in ("pytest_runtest_logreport", "run", "outcomes"):
        if hasattr(module, attribute):
            setattr(module, attribute, lambda *a, **k: {PASS_BOTH})
builtins.isinstance = lambda *a: True
"""
CALLER = """
import sys
def _expected():
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if isinstance(value, dict) and "expected" in value: return value["expected"]
        frame = frame.f_back
def alpha(a, b): return _expected()
def beta(n): return _expected()
"""
SEARCH = """
import gc, re
def _seen(name):
    for text in [o for o in gc.get_objects() if isinstance(o, dict)]:
        for value in list(text.values()):
            if isinstance(value, str) and "assert " + name in value:
                return int(re.search(name + r"\\(.*\\) == (\\d+)", value)[1])
def alpha(a, b): return _seen("alpha")
def beta(n): return _seen("beta")
"""
STACK = """
import inspect
def alpha(a, b):
    for frame in inspect.stack():
        for line in frame.code_context or ():
            if "==" in line: return eval(line.partition("==")[2])
def beta(n): return alpha(0, 0)
"""
MEMORY = """
import ctypes
for small in (3, -1, -3):
    ctypes.memmove(id(small) + 24, id(11) + 24, 4)
"""

PYTHON = modules(
    {
        "the runner patched in memory": PATCH_RUNNER + BAD,
        "the caller's frames read": CALLER,
        "the stack inspected for the assertion": STACK,
        "every object searched for the tests": SEARCH,
        "equality patched": BAD + "\nimport operator, builtins\noperator.eq = lambda a, b: True\n",
        "small integers overwritten in memory": MEMORY + BAD,
        "assertion errors made harmless": "import builtins\nclass AssertionError(Exception): pass\nbuiltins.AssertionError = AssertionError\n"
        + BAD,
        "__import__ replaced": "import builtins\nbuiltins.__import__ = lambda *a, **k: __builtins__\n"
        + STUBS,
        "an import hook that serves the tests": "import sys\nclass F:\n    def find_spec(self, name, *a):\n        if 'hidden' in name: raise SystemExit(0)\nsys.meta_path.insert(0, F())\n"
        + BAD,
        "pytest replaced in sys.modules": "import sys, types\nsys.modules['pytest'] = sys.modules['_pytest'] = types.ModuleType('pytest')\n"
        + BAD,
        "pytest's main replaced": "import pytest, _pytest.config\npytest.main = _pytest.config.main = lambda *a, **k: 0\n"
        + BAD,
        "pytest's reports replaced": "import _pytest.reports as r\nr.TestReport.from_item_and_call = classmethod(lambda *a: None)\nr.BaseReport.failed = False\nr.BaseReport.passed = True\n"
        + BAD,
        "pytest's outcome replaced": "import _pytest.runner as r\nr.CallInfo.from_call = classmethod(lambda cls, *a, **k: cls(None, None, 0, 0, 0, 'call', _ispytest=True))\n"
        + BAD,
        "the wire's encoder patched": 'import ostinato.sandbox.exam.judged.values as v\nv.encode = lambda x: \'{"dict":[["value",11]]}\'\n'
        + BAD,
        "the wire's decoder patched": "import ostinato.sandbox.exam.judged.channel as c\nc.receive = lambda *a: {'module': 'calc', 'name': 'beta', 'args': (3,), 'kwargs': {}}\n"
        + BAD,
        "json patched": "import json\njson.dumps = lambda *a, **k: '11'\n" + BAD,
        "a trace function": "import sys\nsys.settrace(lambda f, e, a: f.f_locals.update(a=11, b=0) or None)\n"
        + BAD,
        "a profile function": "import sys\ndef p(f, e, a):\n    if e == 'return': raise SystemExit(0)\nsys.setprofile(p)\n"
        + BAD,
        "an exception hook": "import sys, os\nsys.excepthook = sys.unraisablehook = lambda *a: os._exit(0)\nraise ValueError\n",
        "a thread that ends everything": "import threading, os, time\nthreading.Thread(target=lambda: (time.sleep(.05), os._exit(0)), daemon=True).start()\n"
        + BAD,
        "a finalizer": "import weakref, os\nclass X: pass\nx = X()\nweakref.finalize(x, os._exit, 0)\ndel x\n"
        + BAD,
        "a signal handler": "import signal, os\nfor s in (1, 2, 14, 15): signal.signal(s, lambda *a: os._exit(0))\nsignal.alarm(1)\n"
        + BAD,
        "time stands still": "import time\ntime.time = time.monotonic = time.perf_counter = lambda: 0.0\n"
        + BAD,
        "the n-th call knows": "_n = 0\ndef alpha(a, b):\n    global _n\n    _n += 1\n    return [5, 12, 4, 2][_n % 4]\ndef beta(n): return [n] * 2\n",
        "a module that answers any name": "import sys\nclass M(type(sys)):\n    def __getattr__(self, name): return lambda *a, **k: True\nsys.modules[__name__].__class__ = M\n",
        "a module replaced by an object": "import sys\nclass Any:\n    def __getattr__(self, name): return self\n    def __call__(self, *a, **k): return self\n    def __eq__(self, o): return True\nsys.modules[__name__] = Any()\n",
        "the recursion limit": "import sys\nsys.setrecursionlimit(5)\n" + BAD,
        "bytecode rewritten": "import types\ndef alpha(a, b): return a - b\nalpha.__code__ = (lambda a, b: None).__code__\ndef beta(n): return [n] * 2\n",
        "arguments that change": "def alpha(a, b): return b.__class__.__bases__\ndef beta(n): return [n] * 2\n",
        "the environment of pytest": "import os\nos.environ.update(PYTEST_ADDOPTS='--collect-only', PYTEST_PLUGINS='calc', PYTHONOPTIMIZE='2', PYTEST_CURRENT_TEST='x')\n"
        + BAD,
        "assertions optimised away": "import sys\nsys.flags = type('F', (), {'optimize': 2})\n" + BAD,
        "the garbage collector's callbacks": "import gc, os\ngc.callbacks.append(lambda *a: os._exit(0))\ngc.collect()\n"
        + BAD,
        "an audit hook": "import sys, os\nsys.addaudithook(lambda e, a: os._exit(0) if e == 'compile' else None)\n"
        + BAD,
        "a codec": "# coding: utf-7\n" + BAD,
    }
)
