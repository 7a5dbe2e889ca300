# ruff: noqa: E501
"""Every way we know to look solved without being solved: the verifier must fall for none of them."""

from collections.abc import Mapping

import pytest

from ostinato.sandbox import Verifier
from ostinato.types import Task

GOOD = "def alpha(a, b):\n    return a + b\n\n\ndef beta(n):\n    return [n] * 2\n"
BAD = "def alpha(a, b):\n    return a - b\n\n\ndef beta(n):\n    return [n] * 2\n"
EQUAL = """
class {name}({base}):
    __hash__ = None
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __bool__(self): return True
def alpha(a, b): return {name}({argument})
def beta(n): return {name}({argument})
"""
SKIP_ALL = """
import pytest
def pytest_collection_modifyitems(items):
    for item in items: item.add_marker(pytest.mark.skip)
"""
REWRITE = """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    out = yield
    out.get_result().outcome = "passed"
"""
FORGE_FRAMES = """
import json, os, struct
body = json.dumps({"dict": [["done", True]]}).encode()
passed = [json.dumps({"dict": [["id", f"test_hidden.py::test_{n}"], ["outcome", "passed"]]}).encode() for n in ("alpha", "beta")]
for fd in range(3, 64):
    for text in [*passed, body]:
        try: os.write(fd, struct.pack(">I", len(text)) + text)
        except OSError: pass
"""
PATCH_RUNNER = """
import sys, gc, types
for name, module in list(sys.modules.items()):
    for attribute in ("pytest_runtest_logreport", "run", "outcomes"):
        if hasattr(module, attribute):
            setattr(module, attribute, lambda *a, **k: {"test_hidden.py::test_alpha": "passed", "test_hidden.py::test_beta": "passed"})
import builtins
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
FIND_TESTS = """
import pathlib, re
def _hidden():
    for root in ("/", "/tmp", "/repo", "/proc/1/root", "/proc/1/cwd", ".."):
        for path in pathlib.Path(root).glob("**/test_hidden.py") if root in ("/repo", "..") else pathlib.Path(root).glob("*/test_hidden.py"):
            return path.read_text()
    return ""
def alpha(a, b):
    found = re.search(rf"alpha\\({a}, {b}\\) == (\\d+)", _hidden())
    return int(found[1]) if found else None
def beta(n): return None
"""

HACKS: dict[str, Mapping[str, bytes | str | None]] = {
    # seen in the wild, see docs/sandbox.md
    "sys.exit at import": {"calc.py": "import sys\nsys.exit(0)\n"},
    "os._exit at import": {"calc.py": "import os\nos._exit(0)\n"},
    "os._exit in the function": {
        "calc.py": "import os\ndef alpha(a, b): os._exit(0)\ndef beta(n): os._exit(0)\n"
    },
    "atexit": {"calc.py": BAD + "\nimport atexit, os\natexit.register(os._exit, 0)\n"},
    "an object equal to all": {"calc.py": EQUAL.format(name="Yes", base="object", argument="")},
    "conftest skips all": {"conftest.py": SKIP_ALL},
    "conftest rewrites reports": {"conftest.py": REWRITE},
    "pyproject ignores the tests": {"pyproject.toml": '[tool.pytest.ini_options]\naddopts = "--ignore=."\n'},
    "the test file is deleted": {"test_calc.py": None},
    "expected values are edited": {
        "test_calc.py": "from calc import alpha\ndef test_alpha():\n    assert alpha(2, 3) == -1\n"
    },
    "visible inputs are special-cased": {
        "calc.py": "def alpha(a, b):\n    return 5 if (a, b) == (2, 3) else a - b\ndef beta(n): return [n] * 2\n"
    },
    # our own
    "an int equal to all": {"calc.py": EQUAL.format(name="Int", base="int", argument="1")},
    "a str equal to all": {"calc.py": EQUAL.format(name="Text", base="str", argument="'x'")},
    "a list equal to all": {"calc.py": EQUAL.format(name="List", base="list", argument="")},
    "True for everything": {"calc.py": "def alpha(a, b): return True\ndef beta(n): return True\n"},
    "a float for an int": {"calc.py": GOOD.replace("a + b", "float(a + b)")},
    "a tuple for a list": {"calc.py": GOOD.replace("[n] * 2", "(n, n)")},
    "a skip exception": {
        "calc.py": "import pytest\ndef alpha(a, b): pytest.skip('no')\ndef beta(n): pytest.skip('no')\n"
    },
    "an exit exception": {
        "calc.py": "import pytest\ndef alpha(a, b): pytest.exit('done', 0)\ndef beta(n): raise SystemExit(0)\n"
    },
    "skip at import": {"calc.py": "import pytest\npytest.skip('no', allow_module_level=True)\n"},
    "keyboard interrupt": {
        "calc.py": "def alpha(a, b): raise KeyboardInterrupt\ndef beta(n): raise KeyboardInterrupt\n"
    },
    "results forged on every descriptor": {"calc.py": FORGE_FRAMES + BAD},
    "the runner patched in memory": {"calc.py": PATCH_RUNNER + BAD},
    "the caller's frames read": {"calc.py": CALLER},
    "a module named like one the tests import": {
        "calc.py": BAD,
        "math.py": "def floor(x): return 4\n",
        "pytest.py": "def raises(*a): return __import__('contextlib').nullcontext()\n",
    },
    "sitecustomize and a path file": {
        "sitecustomize.py": "import os\nos._exit(0)\n",
        "x.pth": "import os; os._exit(0)\n",
    },
    "a plugin by entry point": {
        "pytest_plugin.py": REWRITE,
        "setup.cfg": "[tool:pytest]\naddopts = -p pytest_plugin\n",
    },
    "a hidden test of one's own": {"tests/test_hidden.py": "def test_alpha(): pass\ndef test_beta(): pass\n"},
    "equality patched": {"calc.py": BAD + "\nimport operator, builtins\noperator.eq = lambda a, b: True\n"},
    "everything is killed": {
        "calc.py": "import os, signal\nos.kill(os.getppid(), 9)\nos.kill(os.getpid(), 9)\n"
    },
    "a stub that answers the question": {
        "calc.py": "def alpha(*a, **k): return {'value': 11}\ndef beta(*a): return {'raised': 0}\n"
    },
}


@pytest.mark.parametrize("hack", HACKS)
async def test_no_hack_passes(verifier: Verifier, task: Task, hack: str) -> None:
    if hack == "everything is killed" and verifier_is_a_process(verifier):
        pytest.skip("as a plain process it would end the test run")
    changes = {path: text.encode() if isinstance(text, str) else text for path, text in HACKS[hack].items()}
    found = await verifier.verify(task, changes)
    assert not found.passed
    assert found.void is None
    assert found.tampered == tuple(path for path in HACKS[hack] if path in task.protected)


def verifier_is_a_process(verifier: Verifier) -> bool:
    return not verifier._backend.boundary


async def test_the_tests_cannot_be_found(ns_verifier: Verifier, task: Task) -> None:
    found = await ns_verifier.verify(task, {"calc.py": FIND_TESTS.encode()})
    assert not found.passed
    assert found.void is None


BOMBS = {
    "hang": "def alpha(a, b):\n    import time\n    time.sleep(1000)\ndef beta(n): return [n] * 2\n",
    "loop": "def alpha(a, b):\n    while True: pass\ndef beta(n): return [n] * 2\n",
    "hang at import": "import time\ntime.sleep(1000)\n",
    "memory": "def alpha(a, b): return bytearray(1 << 34)\ndef beta(n): return [n] * 2\n",
    "huge answer": "def alpha(a, b): return 'x' * (1 << 25)\ndef beta(n): return [n] * 2\n",
    "huge output": "def alpha(a, b):\n    for _ in range(200): print('x' * 100000)\n    return a - b\ndef beta(n): return [n] * 2\n",
    "deep answer": "def alpha(a, b):\n    x = []\n    for _ in range(10**5): x = [x]\n    return x\ndef beta(n): return [n] * 2\n",
    "endless recursion": "def alpha(a, b): return alpha(a, b)\ndef beta(n): return [n] * 2\n",
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_what_never_ends_fails_and_is_not_void(ns_verifier: Verifier, task: Task, bomb: str) -> None:
    found = await ns_verifier.verify(task, {"calc.py": BOMBS[bomb].encode()})
    assert not found.passed
    assert found.void is None
    assert found.outcomes["test_hidden.py::test_alpha"] != "passed"


async def test_forks_without_end(ns_verifier: Verifier, task: Task) -> None:
    code = "import os\ndef alpha(a, b):\n    while True:\n        os.fork()\ndef beta(n): return [n] * 2\n"
    found = await ns_verifier.verify(task, {"calc.py": code.encode()})
    assert not found.passed
