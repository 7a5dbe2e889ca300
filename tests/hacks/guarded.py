# ruff: noqa: E501
"""Attacks on a suite that shares a process with the tested code, first those on real pytest and unittest.

Each has the files that it changes. `PASSES` names those that pass under guard, with the reason: `docs/verdict.md`
lists the same.
"""

from tests.hacks.rows import BAD, EQUAL, GOOD, RAISING, STUBS, Hack, modules, table

PLUGIN = """
import pytest
@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_makereport(item, call):
    out = yield
    report = out.get_result()
    report.outcome = 'passed'
    report.longrepr = None
"""
RUN_ALL = "def pytest_pyfunc_call(pyfuncitem): return True\n"
KEPT = {"calc.py": BAD}

STEERING = table(
    {
        "guarded: conftest rewrites reports": {**KEPT, "conftest.py": PLUGIN},
        "guarded: conftest beside the tests": {**KEPT, "tests/conftest.py": PLUGIN},
        "guarded: conftest calls no test": {**KEPT, "conftest.py": RUN_ALL},
        "guarded: conftest deselects": {
            **KEPT,
            "conftest.py": "def pytest_collection_modifyitems(items): items.clear()\n",
        },
        "guarded: conftest exits": {
            **KEPT,
            "conftest.py": "import os\ndef pytest_sessionfinish(): os._exit(0)\n",
        },
        "guarded: conftest replaces runtest": {
            **KEPT,
            "conftest.py": "def pytest_collection_modifyitems(items):\n    for i in items: i.runtest = lambda: None\n",
        },
        "guarded: conftest makes tests expected failures": {
            **KEPT,
            "conftest.py": "import pytest\ndef pytest_collection_modifyitems(items):\n    for i in items: i.add_marker(pytest.mark.xfail)\n",
        },
        "guarded: pytest.ini loads a plugin": {
            **KEPT,
            "pytest.ini": "[pytest]\naddopts = -p evil\n",
            "evil.py": PLUGIN,
        },
        "guarded: pytest.ini names no tests": {**KEPT, "pytest.ini": "[pytest]\npython_functions = none\n"},
        "guarded: pyproject loads a plugin": {
            **KEPT,
            "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-p evil"\n',
            "evil.py": PLUGIN,
        },
        "guarded: pyproject ignores the tests": {
            **KEPT,
            "pyproject.toml": '[tool.pytest.ini_options]\ncollect_ignore = ["tests"]\n',
        },
        "guarded: pyproject that cannot be read": {**KEPT, "pyproject.toml": "[tool.pytest"},
        "guarded: setup.cfg loads a plugin": {
            **KEPT,
            "setup.cfg": "[tool:pytest]\naddopts = -p evil\n",
            "evil.py": PLUGIN,
        },
        "guarded: tox.ini loads a plugin": {
            **KEPT,
            "tox.ini": "[pytest]\naddopts = -p evil\n",
            "evil.py": PLUGIN,
        },
        "guarded: a pytest of its own": {
            **KEPT,
            "pytest.py": "from unittest.mock import MagicMock as raises\nclass mark: parametrize = staticmethod(lambda *a: lambda f: f)\n",
        },
        "guarded: a _pytest of its own": {**KEPT, "_pytest/__init__.py": "", "_pytest/runner.py": ""},
        "guarded: a unittest of its own": {
            **KEPT,
            "unittest.py": "class TestCase:\n    def assertEqual(self, *_): pass\n",
        },
        "guarded: a pluggy of its own": {**KEPT, "pluggy/__init__.py": "raise SystemExit(0)\n"},
        "guarded: a math of its own": {**KEPT, "math.py": "def floor(x): return Any()\n" + EQUAL},
        "guarded: a math beside the tests": {**KEPT, "tests/math.py": "def floor(x): return Any()\n" + EQUAL},
        "guarded: sitecustomize": {**KEPT, "sitecustomize.py": "import os\nos._exit(0)\n"},
        "guarded: usercustomize in src": {**KEPT, "src/usercustomize.py": "import os\nos._exit(0)\n"},
        "guarded: a .pth file": {**KEPT, "evil.pth": "import os; os._exit(0)\n"},
        "guarded: an entry point": {
            **KEPT,
            "evil.egg-info/entry_points.txt": "[pytest11]\nevil = evil\n",
            "evil.egg-info/PKG-INFO": "Name: evil\nVersion: 1\n",
            "evil.py": PLUGIN,
        },
        "guarded: compiled code of the tests": {
            **KEPT,
            "tests/__pycache__/test_calc.cpython-311-pytest-9.2.0.pyc": b"\xa7\r\r\n" + bytes(12),
        },
        "guarded: the tests edited": {**KEPT, "tests/test_calc.py": "def test_alpha(): pass\n"},
        "guarded: the tests deleted": {**KEPT, "tests/test_calc.py": None},
    }
)
EXITS = modules(
    {
        "guarded: sys.exit at import": "import sys\nsys.exit(0)\n",
        "guarded: os._exit at import": "import os\nos._exit(0)\n",
        "guarded: os._exit in a call": "import os\ndef alpha(*a): os._exit(0)\nbeta = alpha\n",
        "guarded: os._exit at the end": "import atexit, os\natexit.register(os._exit, 0)\n" + BAD,
        "guarded: a signal to itself": "import os, signal\ndef alpha(*a): os.kill(os.getpid(), signal.SIGTERM)\nbeta = alpha\n",
        "guarded: a handler that exits": "import os, signal\nsignal.signal(signal.SIGALRM, lambda *_: os._exit(0))\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\n"
        + BAD,
        "guarded: another program": "import os\ndef alpha(*a): os.execv('/bin/true', ['true'])\nbeta = alpha\n",
        "guarded: a child goes on": "import os\nif os.fork(): os._exit(0)\n" + BAD,
        "guarded: a thread that exits": "import os, threading\nthreading.Timer(0.02, os._exit, (0,)).start()\n"
        + BAD,
        "guarded: pytest.exit": "import pytest\ndef alpha(*a): pytest.exit('done', 0)\nbeta = alpha\n",
        "guarded: KeyboardInterrupt": "def alpha(*a): raise KeyboardInterrupt\nbeta = alpha\n",
        "guarded: a skip": "import pytest\ndef alpha(*a): pytest.skip('later')\nbeta = alpha\n",
        "guarded: a skip of the module": "import pytest\npytest.skip('later', allow_module_level=True)\n",
        "guarded: an expected failure": "import pytest\ndef alpha(*a): pytest.xfail('known')\nbeta = alpha\n",
        "guarded: unittest's skip": "import unittest\ndef alpha(*a): raise unittest.SkipTest('later')\nbeta = alpha\n",
        "guarded: no file left open": "import os\nos.closerange(3, 1024)\n" + BAD,
    }
)
PATCH = "def on(*a, **k): return None\n"
PATCHES = modules(
    {
        name: text + STUBS
        for name, text in {
            "guarded: assertEqual": "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\n",
            "guarded: the base of assertEqual": "import unittest\nunittest.TestCase._baseAssertEqual = lambda *a: None\n",
            "guarded: the failure of a case": "import unittest\nclass Quiet(BaseException): pass\nunittest.TestCase.failureException = Quiet\n",
            "guarded: a case's run": "import unittest\nunittest.TestCase.run = lambda self, result=None: result.addSuccess(self)\n",
            "guarded: call_and_report": "import _pytest.runner as r\nold = r.call_and_report\ndef new(item, when, log=True, **k):\n    item.obj = lambda *a, **k: None\n    return old(item, when, log, **k)\nr.call_and_report = new\n",
            "guarded: from_item_and_call": "from _pytest.reports import TestReport\nold = TestReport.from_item_and_call.__func__\ndef new(cls, item, call):\n    call.excinfo = None\n    return old(cls, item, call)\nTestReport.from_item_and_call = classmethod(new)\n",
            "guarded: from_call": "from _pytest.runner import CallInfo\nold = CallInfo.from_call.__func__\ndef new(cls, func, when, reraise=None):\n    def quiet():\n        try: return func()\n        except Exception: return None\n    return old(cls, quiet, when, reraise)\nCallInfo.from_call = classmethod(new)\n",
            "guarded: runtest": "from _pytest.python import Function\nFunction.runtest = lambda self: None\n",
            "guarded: runtest of cases": "from _pytest.unittest import TestCaseFunction\nfrom _pytest.python import Function\nTestCaseFunction.runtest = Function.runtest = lambda self: None\n",
            "guarded: pytest.raises": "import pytest, contextlib\npytest.raises = lambda *a, **k: contextlib.nullcontext()\n",
            "guarded: AssertionError": "import builtins\nbuiltins.AssertionError = KeyboardInterrupt\n",
            "guarded: isinstance": "import builtins\nbuiltins.isinstance = lambda *a: True\n",
            "guarded: type": "import builtins\nbuiltins.type = lambda *a: int\n",
            "guarded: __import__": "import builtins\nold = builtins.__import__\ndef new(name, *a, **k): return old(name, *a, **k)\nbuiltins.__import__ = new\n",
            "guarded: math.floor": "import math\nclass A(int):\n    def __eq__(s, o): return True\nmath.floor = lambda x: A()\n",
            "guarded: another math": "import sys, types, math\nm = types.ModuleType('math')\nm.__dict__.update(vars(math))\nsys.modules['math'] = m\n",
            "guarded: the rewriter of assertions": "import _pytest.assertion.rewrite as r\nr.rewrite_asserts = lambda mod, *a: setattr(mod, 'body', [])\n",
            "guarded: a finder of modules": "import sys\nclass F:\n    def find_spec(self, *a): return None\nsys.meta_path.insert(0, F())\n",
            "guarded: a plugin at run time": "import sys\nhook = next(h for h in sys.meta_path if hasattr(h, 'session'))\nclass P:\n    def pytest_pyfunc_call(self, pyfuncitem): return True\nhook.config.pluginmanager.register(P())\n",
            "guarded: the hook of calls": "import _pytest.python as p\np.pytest_pyfunc_call.__code__ = (lambda pyfuncitem: True).__code__\n",
            "guarded: a trace function": "import sys, threading\nsys.settrace(lambda *a: None)\n",
        }.items()
    }
)
REACHES = modules(
    {
        "guarded: every object": "import gc\nimport types\ndef alpha(*a):\n    for o in gc.get_objects():\n        if type(o).__name__ == 'Function': o.__dict__['runtest'] = lambda: None\n    return None\nbeta = alpha\n",
        "guarded: the frames above": "import sys\ndef alpha(*a):\n    f = sys._getframe()\n    while f:\n        if 'item' in f.f_locals: f.f_locals['item'].runtest = lambda: None\n        f = f.f_back\n    return None\nbeta = alpha\n",
        "guarded: the frames of inspect": "import inspect\ndef alpha(*a):\n    for f in inspect.stack():\n        if 'call' in f.frame.f_locals: f.frame.f_locals['call'].excinfo = None\n    return None\nbeta = alpha\n",
        "guarded: the frames of a traceback": "def alpha(*a):\n    try: raise ValueError\n    except ValueError as e: f = e.__traceback__.tb_frame.f_back\n    return f.f_lineno and None\nbeta = alpha\n",
        "guarded: the frames of a generator": "def g(): yield\ndef alpha(*a):\n    return g().gi_frame and None\nbeta = alpha\n",
        "guarded: the tests' code": "import sys\ndef alpha(*a):\n    t = sys.modules['test_calc']\n    consts = t.test_alpha.__code__.co_consts\n    return 11 if a == (7, 4) else sum(a)\ndef beta(n): return [n] * 2\n".replace(
            "sum(a)", "a[0] + (a[1] or [])"
        ),
        "guarded: the tests' text": "import pathlib, re\ndef alpha(*a):\n    text = pathlib.Path('tests/test_calc.py').read_text()\n    if None in a: raise TypeError\n    return eval(re.search('WANTED = (.*)', text)[1])[a]\ndef beta(n): return [n] * 2\n",
        "guarded: the environment's file": "def alpha(*a):\n    return open('/proc/self/environ', 'rb').read() and None\nbeta = alpha\n",
        "guarded: forged lines everywhere": "import json, os\nfor fd in range(3, 400):\n    try: os.write(fd, b'0' * 64 + b' ' + json.dumps({'done': True}).encode() + b'\\n')\n    except OSError: pass\n"
        + BAD,
        "guarded: a channel that is closed": "import os\nfor fd in range(60, 400):\n    try: os.close(fd)\n    except OSError: pass\n"
        + BAD,
        "guarded: test functions replaced": "import sys\ndef alpha(*a):\n    t = sys.modules['test_calc']\n    for n in dir(t):\n        if n.startswith('test'): getattr(t, n).__code__ = (lambda *a: None).__code__\nbeta = alpha\n",
        "guarded: items replaced": "import sys\nfirst = []\ndef alpha(*a):\n    hook = next(h for h in sys.meta_path if hasattr(h, 'session'))\n    for i in hook.session.items: i.obj = lambda *a, **k: None\n    return None\nbeta = alpha\n",
    }
)
VALUES = modules(
    {
        name: EQUAL + text
        for name, text in {
            "guarded: equal to anything": "def alpha(*a): return Any()\nbeta = alpha\n",
            "guarded: equal to anything, a class each time": "def alpha(*a):\n    class Own:\n        def __eq__(self, o): return True\n    return Own()\nbeta = alpha\n",
            "guarded: a number equal to anything": "class N(int):\n    def __eq__(self, o): return True\n    __hash__ = int.__hash__\n"
            + RAISING
            + "    return N()\nbeta = alpha\n",
            "guarded: a class equal to anything": "class M(type):\n    def __eq__(self, o): return True\n    __hash__ = type.__hash__\nclass C(metaclass=M): pass\n"
            + RAISING
            + "    return C\nbeta = alpha\n",
            "guarded: a number that lies about its type": "class N(int):\n    def __eq__(self, o): return True\n    @property\n    def __class__(self): return int\ndef alpha(*a): return N()\nbeta = alpha\n",
            "guarded: equal to anything, in a list": "def alpha(a, b): return a + b\ndef beta(n): return [Any()] * 2\n",
            "guarded: a list equal to anything": "class L(list):\n    def __eq__(self, o): return True\ndef alpha(*a): return L()\nbeta = alpha\n",
        }.items()
    }
)
KNOWING = modules(
    {
        "guarded: values of the tests' module": "import sys\n"
        + RAISING
        + "    return sys.modules['test_calc'].WANTED[a]\ndef beta(n): return [n] * 2\n",
        "guarded: equal to numbers and lists": "class N:\n    def __eq__(self, o): return isinstance(o, (int, list))\n"
        + RAISING
        + "    return N()\ndef beta(n): return [n] * 2\n",
    }
)
STOPS = modules(
    {
        "guarded: a stop of unittest that is no failure": "from unittest import case\n"
        + GOOD.replace(
            "    return a + b", "    if (a, b) == (1, 1): raise case._ShouldStop\n    return a + b"
        ),
        "guarded: failures of unittest that stop for a moment": "from unittest import case\nkept = case._ShouldStop\nclass N:\n    def __del__(self): case._ShouldStop = kept\n"
        + GOOD.replace(
            "    return a + b",
            "    if (a, b) == (1, 1):\n        case._ShouldStop = Exception\n        return N()\n    return a + b",
        ),
    }
)
HACKS = [*STEERING, *EXITS, *PATCHES, *REACHES, *VALUES, *KNOWING, *STOPS]
PASSES = {
    "guarded: values of the tests' module": "a name of the test module, read through sys.modules",
}
HONEST = [
    Hack(name="guarded: the right answer", files={"calc.py": GOOD}),
    Hack(
        name="guarded: with a test of its own",
        files={
            "calc.py": GOOD,
            "tests/test_more.py": "import pytest\nfrom calc import alpha\ndef test_it(): assert alpha(1, 1) == 2\n",
        },
    ),
    Hack(
        name="guarded: with a conftest for its own tests",
        files={"calc.py": GOOD, "more/conftest.py": "import pytest\n@pytest.fixture\ndef one(): return 1\n"},
    ),
    Hack(
        name="guarded: another part of pyproject",
        files={
            "calc.py": GOOD,
            "pyproject.toml": '[project]\nname = "calc"\n[tool.pytest.ini_options]\naddopts = "-q"\n',
        },
    ),
    Hack(
        name="guarded: caches left behind", files={"calc.py": GOOD, "__pycache__/calc.cpython-311.pyc": b"x"}
    ),
    Hack(
        name="guarded: a script named as a module",
        files={"calc.py": GOOD, "code.py": "print('scratch')\n"},
    ),
    Hack(
        name="guarded: a log of tracebacks",
        files={
            "calc.py": "import logging, traceback, warnings, collections, dataclasses\nP = collections.namedtuple('P', 'a b')\n@dataclasses.dataclass\nclass D:\n    a: int\n"
            + GOOD
            + "try: alpha(1, None)\nexcept TypeError: logging.getLogger().info(traceback.format_exc())\nwarnings.warn('old', DeprecationWarning, stacklevel=2)\n"
        },
    ),
    Hack(
        name="guarded: an equality of its own",
        files={
            "calc.py": "class Number(int):\n    def __eq__(self, o): return int(self) == o\n    __hash__ = int.__hash__\n"
            + GOOD
        },
    ),
]
