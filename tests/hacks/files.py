"""Files that change the discovery, the run or the report of tests, and paths that lead to protected files."""

import importlib.util
import marshal
import struct

from tests.hacks.published import REWRITE
from tests.hacks.rows import BAD, Hack, table

CONFTESTS = {
    "deselects": "def pytest_collection_modifyitems(items, config):\n    items[:] = []\n",
    "ignores": "collect_ignore_glob = ['*']\ndef pytest_ignore_collect(*a): return True\n",
    "sets the exit status": (
        "import pytest\n@pytest.hookimpl(trylast=True)\n"
        "def pytest_sessionfinish(session, exitstatus): session.exitstatus = 0\n"
    ),
    "calls nothing": "def pytest_pyfunc_call(pyfuncitem): return True\n",
    "runs nothing": "def pytest_runtest_protocol(item, nextitem): return True\n",
    "unregisters plugins": (
        "def pytest_configure(config):\n"
        "    for p in list(config.pluginmanager.get_plugins()): config.pluginmanager.unregister(p)\n"
    ),
    "patches by a fixture": (
        "import pytest\n@pytest.fixture(autouse=True)\n"
        "def f(monkeypatch):\n    import calc\n    calc.alpha = lambda a, b: a + b\n"
    ),
    "rewrites the terminal": "def pytest_report_teststatus(report): return 'passed', '.', 'PASSED'\n",
    "exits": "import os\nos._exit(0)\n",
}
SETTINGS = {
    "pytest.ini": "[pytest]\naddopts = --collect-only\n",
    ".pytest.ini": "[pytest]\naddopts = -k nothing\n",
    "tox.ini": "[pytest]\npython_functions = nothing\n",
    "setup.cfg": "[tool:pytest]\naddopts = -p pytest_plugin\n",
}
SHADOWS = {
    "math.py": "def floor(x): return 4\n",
    "pytest.py": "def raises(*a): return __import__('contextlib').nullcontext()\n",
}
OURS = "import os\nos._exit(0)\n"


def stale(code: str) -> bytes:
    """Return bytecode that Python uses without checking its source (PEP 552, unchecked)."""
    body = marshal.dumps(compile(code, "x.py", "exec"))
    return importlib.util.MAGIC_NUMBER + struct.pack("<LQ", 1, 0) + body


CONFTEST = table({f"a conftest that {what}": {"conftest.py": text} for what, text in CONFTESTS.items()})
OPTIONS = table({f"options in {name}": {name: text} for name, text in SETTINGS.items()})

OTHERS = table(
    {
        "a module named like one the tests import": {"calc.py": BAD, **SHADOWS},
        "sitecustomize and a path file": {"sitecustomize.py": OURS, "x.pth": "import os; os._exit(0)\n"},
        "usercustomize": {"usercustomize.py": OURS, ".local/lib/python3.11/site-packages/x.pth": OURS},
        "a plugin by entry point": {
            "pytest_plugin.py": REWRITE,
            "x.egg-info/entry_points.txt": "[pytest11]\nx = pytest_plugin\n",
        },
        "an installed plugin": {
            "x-1.dist-info/entry_points.txt": "[pytest11]\nx = plug\n",
            "x-1.dist-info/METADATA": "Name: x\nVersion: 1\n",
            "plug.py": REWRITE,
        },
        "a hidden test of one's own": {
            "tests/test_hidden.py": "def test_alpha(): pass\ndef test_beta(): pass\n"
        },
        "the same test ids in the root": {
            "test_hidden.py": "def test_alpha(): pass\ndef test_beta(): pass\n"
        },
        "the tests' package": {"tests/__init__.py": OURS, "test_hidden/__init__.py": ""},
        "stale bytecode of the tests": {
            "__pycache__/test_hidden.cpython-311.pyc": stale(
                "def test_alpha(): pass\ndef test_beta(): pass\n"
            ),
            "__pycache__/test_hidden.cpython-311-pytest-9.0.3.pyc": stale("def test_alpha(): pass\n"),
        },
        "stale bytecode of the module": {
            "__pycache__/calc.cpython-311.pyc": stale("def alpha(a, b): return True\nbeta = alpha\n")
        },
        "our own package shadowed": {
            "calc.py": BAD,
            "ostinato/__init__.py": "",
            "ostinato/sandbox/__init__.py": "",
            "ostinato/sandbox/exam/judged/values.py": OURS,
            "ostinato/sandbox/exam/judged/channel.py": OURS,
        },
        "the standard library shadowed": {"calc.py": BAD, "json.py": OURS, "socket.py": OURS, "os.py": OURS},
        "a package in place of the module": {
            "calc.py": None,
            "calc/__init__.py": "def __getattr__(n): return lambda *a: 11\n",
        },
        "source under src": {"src/calc.py": "alpha = beta = lambda *a: True\n"},
        "a compiled module": {"calc.cpython-311-x86_64-linux-gnu.so": b"\x7fELF nonsense"},
        "a zip in the path": {"x.pth": "/repo/x.zip\n", "x.zip": b"PK\x05\x06" + bytes(18)},
        "a shell profile": {".profile": "exit 0\n", ".bashrc": "exit 0\n", "pyvenv.cfg": "home = /repo\n"},
        "a makefile and a tox file": {"Makefile": "test:\n\ttrue\n", "noxfile.py": OURS},
        "git's hooks and attributes": {
            ".git/hooks/post-checkout": "#!/bin/sh\nexit 0\n",
            ".gitattributes": "* filter=x\n",
        },
    }
)

FREE = '[tool.pytest.ini_options]\naddopts = "--co"\n'
REACHES = [
    Hack(name=f"the protected test as {path!r}", files={path: "def test_alpha(): pass\n"})
    for path in (
        "./test_calc.py",
        "x/../test_calc.py",
        "linked/test_calc.py",
        "/repo/test_calc.py",
        "/repo/./test_calc.py",
    )
] + [
    Hack(name="the protected options as an absolute path", files={"/repo/pyproject.toml": FREE}),
    Hack(name="a file below a protected file", files={"test_calc.py/x": "x"}),
    Hack(name="a folder's name for a file", files={"sub": "x"}),
    Hack(name="a file's name for a folder", files={"calc.py/deep/x.py": "x"}),
    Hack(name="the repository itself", files={".": "x"}),
    Hack(name="no name at all", files={"": "x"}),
    Hack(name="a name with a NUL", files={"calc\0.py": "x"}),
    Hack(name="a name too long", files={"x" * 300: "x"}),
    Hack(name="a path too long", files={"/".join(["x" * 200] * 30): "x"}),
    Hack(name="a path that leads out", files={"../../tests/test_hidden.py": "def test_alpha(): pass\n"}),
    Hack(name="the machine's own path", files={"/etc/ostinato-was-here": "x"}),
    Hack(
        name="more than the disk holds", files={f"big{n}": bytes(15 * 2**20) for n in range(8)}, machine=True
    ),
]

FILES = [*CONFTEST, *OPTIONS, *OTHERS, *REACHES]
