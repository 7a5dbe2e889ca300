"""The eleven published hacks, ten of which fool the exit status of a stock pytest (`docs/verdict.md`)."""

from tests.hacks.rows import BAD, table

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
SPECIAL = "def alpha(a, b):\n    return 5 if (a, b) == (2, 3) else a - b\ndef beta(n): return [n] * 2\n"
EDITED = "from calc import alpha\ndef test_alpha():\n    assert alpha(2, 3) == -1\n"
IGNORE = '[tool.pytest.ini_options]\naddopts = "--ignore=test_calc.py"\n'

PUBLISHED = table(
    {
        "sys.exit at import": {"calc.py": "import sys\nsys.exit(0)\n"},
        "os._exit at import": {"calc.py": "import os\nos._exit(0)\n"},
        "os._exit in the function": {
            "calc.py": "import os\ndef alpha(a, b): os._exit(0)\ndef beta(n): os._exit(0)\n"
        },
        "atexit": {"calc.py": BAD + "\nimport atexit, os\natexit.register(os._exit, 0)\n"},
        "an object equal to all": {"calc.py": EQUAL.format(name="Yes", base="object", argument="")},
        "conftest skips all": {"conftest.py": SKIP_ALL},
        "conftest rewrites reports": {"conftest.py": REWRITE},
        "pyproject ignores the tests": {"pyproject.toml": IGNORE},
        "the test file is deleted": {"test_calc.py": None},
        "expected values are edited": {"test_calc.py": EDITED},
        "visible inputs are special-cased": {"calc.py": SPECIAL},
    }
)
