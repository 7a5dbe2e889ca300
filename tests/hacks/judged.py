# ruff: noqa: E501
"""Cheats on hidden tests of other shapes: effects of a return value on its test, and modules that a test imports."""

from tests.hacks.rows import BY_HAND, Hack

COLLIDING = "[i * (2 ** 61 - 1) for i in range(200000)]"
DEEP = "x = []\nfor _ in range({0}): x = [x]\n"
TEST = "import pytest\nfrom calc import alpha\n\n\ndef test_it():\n    {0}\n"


def _answers(rows: dict[str, tuple[str, str]], wall_s: float = 3.0) -> list[Hack]:
    """Return hacks from the body of the only hidden test and `calc.py`, by name."""
    return [
        Hack(
            name=name,
            files={"calc.py": code},
            hidden=TEST.format(body.replace("\n", "\n    ")),
            machine=True,
            wall_s=wall_s,
        )
        for name, (body, code) in rows.items()
    ]


ENDLESS = _answers(
    {
        "a set of colliding numbers": ("assert set(alpha()) == {1}", f"def alpha(): return {COLLIDING}\n"),
        "a dictionary of colliding keys": (
            "assert dict.fromkeys(alpha()) == {}",
            f"def alpha(): return {COLLIDING}\n",
        ),
        "a set that collides on the wire": (
            "assert alpha() == {1}",
            BY_HAND
            + "def alpha(): return {'set': [{'int': hex(i * (2 ** 61 - 1))} for i in range(200000)]}\n",
        ),
        "keys that collide on the wire": (
            "assert alpha() == {}",
            BY_HAND
            + "def alpha(): return {'dict': [[{'int': hex(i * (2 ** 61 - 1))}, 0] for i in range(200000)]}\n",
        ),
        "records that collide": (
            "assert set(alpha()) == {1}",
            "from fractions import Fraction\ndef alpha(): return [Fraction(i * (2 ** 61 - 1)) for i in range(60000)]\n",
        ),
        "a power": ("assert 3 ** alpha() % 7 == 1", "def alpha(): return 10 ** 9\n"),
        "a shift": ("assert (1 << alpha()) % 7 == 1", "def alpha(): return 10 ** 11\n"),
        "a factorial": ("import math\nassert math.factorial(alpha()) == 1", "def alpha(): return 10 ** 8\n"),
        "a number too large to be written": (
            "assert len(hex(alpha()) + oct(alpha() ** 9)) == 1",
            "def alpha(): return 1 << (1 << 24)\n",
        ),
        "a product of sequences": ("assert [0] * alpha() == [1]", "def alpha(): return 10 ** 11\n"),
        "a width": ("assert f'{1:{alpha()}}' == '1'", "def alpha(): return 10 ** 11\n"),
        "a pattern": ("import re\nassert re.fullmatch('(a|a)*c', alpha())", "def alpha(): return 'a' * 40\n"),
        "a pattern of its own": (
            "import re\nassert re.fullmatch(alpha(), 'a' * 40)",
            "def alpha(): return '(a|a)*c'\n",
        ),
        "nested for equality": (
            "assert alpha() == alpha()",
            DEEP.format(900) + "def alpha(): return [x, 0]\n",
        ),
        "nested for writing": (
            "assert repr(alpha()) == '1'",
            DEEP.format(900) + "def alpha(): return [x] * 9\n",
        ),
        "an exponent": (
            "assert int(alpha()) == 1",
            "from decimal import Decimal\ndef alpha(): return Decimal('1E+99999999')\n",
        ),
        "an exponent as an integer ratio": (
            "from fractions import Fraction\nassert Fraction(alpha()) == 1",
            "from decimal import Decimal\ndef alpha(): return Decimal('1E-9999999')\n",
        ),
        "a range without end": ("assert list(alpha()) == [1]", "def alpha(): return range(10 ** 12)\n"),
        "a generator without end": (
            "assert sum(alpha()) == 1",
            "import itertools\ndef alpha(): return itertools.count()\n",
        ),
        "an iterator that waits": (
            "assert next(alpha()) == 1",
            "import time\ndef alpha():\n    time.sleep(999)\n    yield 1\n",
        ),
        "sorting": (
            "assert sorted(alpha(), key=lambda n: [n] * 10 ** 5) == [1]",
            "def alpha(): return list(range(20000))\n",
        ),
        "time to sleep": (
            "import time\ntime.sleep(alpha())\nassert alpha() == 1",
            "def alpha(): return 999\n",
        ),
        "an endless delta": (
            "from datetime import date\nday = date(1, 1, 1)\nwhile day < alpha(): pass",
            "from datetime import date\ndef alpha(): return date.max\n",
        ),
        "memory of the judge": (
            "assert [alpha() for _ in range(10 ** 6)] == [1]",
            "def alpha(): return 'x' * (1 << 23)\n",
        ),
        "a name of a million letters": (
            "assert alpha().x == 2",
            "from collections import namedtuple\ndef alpha(): return namedtuple('P' * 10 ** 6, 'x')(1)\n",
        ),
        "a thousand fields": (
            "assert alpha().a0 == 2",
            "from collections import namedtuple\ndef alpha(): return namedtuple('P', [f'a{i}' for i in range(3000)])(*range(3000))\n",
        ),
    },
    wall_s=0.3,
)
STOP = "def alpha(*_): raise {0}\n"
MAPPED = "for got, want in zip(map(alpha, [1, 2]), [3, 4]): assert got == want"
ENDS = _answers(
    {
        "StopIteration in a map": (MAPPED, STOP.format("StopIteration")),
        "StopIteration with a value": (MAPPED, STOP.format("StopIteration(3)")),
        "one that derives from StopIteration": (MAPPED, "class E(StopIteration): pass\n" + STOP.format("E")),
        "one that derives from two": (
            MAPPED,
            "class E(ValueError, StopIteration): pass\n" + STOP.format("E('x')"),
        ),
        "StopIteration in a filter": (
            "assert all(x == 3 for x in map(alpha, [1]))\nassert not [*filter(lambda x: alpha(x) != 3, [1])]",
            STOP.format("StopIteration"),
        ),
        "StopIteration in an iterator": (
            "class I:\n    def __iter__(self): return self\n    def __next__(self): return alpha(1)\nfor got in I(): assert got == 1\n",
            STOP.format("StopIteration"),
        ),
        "StopIteration in a for over iter": (
            "for got in iter(lambda: alpha(1), 5): assert got == 3",
            STOP.format("StopIteration"),
        ),
        "StopAsyncIteration": (
            "import asyncio\nclass I:\n    def __aiter__(self): return self\n    async def __anext__(self): return alpha(1)\nasync def f():\n    async for got in I(): assert got == 3\nasyncio.run(f())",
            STOP.format("StopAsyncIteration"),
        ),
        "a cancellation in a task": (
            "import asyncio\nasync def one(): assert alpha(1) == 3\nasync def f():\n    async with asyncio.TaskGroup() as group: group.create_task(one())\nasyncio.run(f())",
            "import asyncio\n" + STOP.format("asyncio.CancelledError"),
        ),
        "a cancellation that derives": (
            "import asyncio\nasync def one(): assert alpha(1) == 3\nasync def f():\n    async with asyncio.TaskGroup() as group: group.create_task(one())\nasyncio.run(f())",
            "import asyncio\nclass E(asyncio.CancelledError): pass\n" + STOP.format("E"),
        ),
        "GeneratorExit in a closed generator": (
            "def g():\n    try: yield\n    finally: assert alpha(1) == 3\nit = g()\nnext(it)\nit.close()",
            STOP.format("GeneratorExit"),
        ),
        "KeyboardInterrupt": ("assert alpha(1) == 3", STOP.format("KeyboardInterrupt")),
        "one that derives from KeyboardInterrupt": (
            "assert alpha(1) == 3",
            "class E(KeyboardInterrupt): pass\n" + STOP.format("E"),
        ),
        "SystemExit with success": ("assert alpha(1) == 3", STOP.format("SystemExit(0)")),
        "SystemExit where a file is loaded": ("pass\nassert alpha(1) == 3", "raise SystemExit(0)\n"),
        "RecursionError": ("assert alpha(1) == 3", "def alpha(*_): return alpha()\n"),
        "MemoryError": ("assert alpha(1) == 3", STOP.format("MemoryError")),
        "pytest's skip, derived": (
            "assert alpha(1) == 3",
            "import pytest\nclass E(pytest.skip.Exception): pass\n" + STOP.format("E('x')"),
        ),
        "pytest's exit, derived": (
            "assert alpha(1) == 3",
            "import pytest\nclass E(pytest.exit.Exception): pass\n" + STOP.format("E('x', 0)"),
        ),
        "pytest's failure that is expected": (
            "assert alpha(1) == 3",
            "import pytest\n" + STOP.format("pytest.xfail.Exception('x')"),
        ),
        "a skip by its name": (
            "assert alpha(1) == 3",
            "class Skipped(Exception):\n    __module__ = 'builtins'\n    allow_module_level = True\n"
            + STOP.format("Skipped('x')"),
        ),
        "unittest's skip in a test case": (
            "import unittest\nclass T(unittest.TestCase):\n    def test(self): assert alpha(1) == 3\nassert unittest.TextTestRunner().run(T('test')).testsRun == 1\nassert alpha(1) == 3",
            "import unittest\n" + STOP.format("unittest.SkipTest('x')"),
        ),
        "a class merely named ValueError": (
            "with pytest.raises(ValueError): alpha(1)",
            "class ValueError(Exception): pass\n" + STOP.format("ValueError"),
        ),
        "a class with the name and module of ValueError": (
            "with pytest.raises(ValueError): alpha(1)",
            "E = type('ValueError', (Exception,), {'__module__': 'builtins'})\n" + STOP.format("E"),
        ),
        "a class merely named JSONDecodeError": (
            "import json\nwith pytest.raises(json.JSONDecodeError): alpha(1)",
            "class JSONDecodeError(ValueError): pass\n" + STOP.format("JSONDecodeError"),
        ),
        "a class with the name and module of JSONDecodeError": (
            "import json\nwith pytest.raises(json.JSONDecodeError): alpha(1)",
            "E = type('JSONDecodeError', (ValueError,), {'__module__': 'json.decoder'})\n"
            + STOP.format("E('x')"),
        ),
        "StopIteration that the test's own function raised": (
            "for got, want in zip(map(lambda n: alpha(lambda: next(iter([]))), [1, 2]), [3, 4]): assert got == want",
            "def alpha(f): f()\n",
        ),
        "an error of the test's that never was": (
            "with pytest.raises(IndexError): alpha(1)",
            "import ostinato.sandbox.exam.judged.exceptions as r\nr.describe = lambda e: {'again': 7}\n"
            + STOP.format("ValueError"),
        ),
        "a container that is none, on the wire": (
            MAPPED,
            BY_HAND + "def alpha(*_): return {'held': [1, None]}\n",
        ),
        "a sibling of the exception": ("with pytest.raises(KeyError): alpha(1)", STOP.format("IndexError")),
        "a base of the exception": ("with pytest.raises(KeyError): alpha(1)", STOP.format("LookupError")),
        "an exit where an exception is expected": (
            "with pytest.raises(Exception): alpha(1)",
            STOP.format("SystemExit(1)"),
        ),
        "death where an exception is expected": (
            "with pytest.raises(Exception): alpha(1)",
            "import os\ndef alpha(*_): os._exit(1)\n",
        ),
        "death where anything is expected": (
            "with pytest.raises(BaseException): alpha(1)",
            "import os\ndef alpha(*_): os._exit(1)\n",
        ),
        "death where nothing is made of it": (
            "try: alpha(1)\nexcept BaseException: pass",
            "import os\ndef alpha(*_): os._exit(1)\n",
        ),
        "silence where an exception is expected": (
            "with pytest.raises(Exception): alpha(1)",
            "import time\ndef alpha(*_): time.sleep(99)\n",
        ),
        "an object where an exception is expected": (
            "with pytest.raises(Exception): alpha(1)",
            "def alpha(*_): return object()\n",
        ),
        "an answer too large where an exception is expected": (
            "with pytest.raises(Exception): alpha(1)",
            "def alpha(*_): return 'x' * (1 << 25)\n",
        ),
        "an answer too deep where an exception is expected": (
            "with pytest.raises(Exception): alpha(1)",
            DEEP.format(5000) + "def alpha(*_): return x\n",
        ),
        "nonsense where an exception is expected": (
            "with pytest.raises(Exception): alpha(1)",
            "import ostinato.sandbox.exam.judged.values as v\nv.encode = lambda *_: '{'\ndef alpha(*_): return 1\n",
        ),
        "an exception made up on the wire": (
            "with pytest.raises(KeyError): alpha(1)",
            "import ostinato.sandbox.exam.judged.exceptions as r\nr.describe = lambda e: {'family': [{'own': 'eval'}], 'args': ['1'], 'message': '', 'attributes': {}}\n"
            + STOP.format("ValueError"),
        ),
        "an exception that is no class": (
            "with pytest.raises(KeyError): alpha(1)",
            "import ostinato.sandbox.exam.judged.exceptions as r\nr.describe = lambda e: {'family': [{'own': 'KeyError'}, {'module': 'm', 'name': 'n', 'bases': [0, 0, 9]}][::-1], 'args': [], 'message': 1, 'attributes': {}}\n"
            + STOP.format("ValueError"),
        ),
        "a bad argument that is not asked": (
            "with pytest.raises(TypeError): alpha(object())",
            "def alpha(x): return x\n",
        ),
        "an iterator that ends too early": (
            "got = iter(alpha(1))\nassert [next(got), next(got)] == [1, 2]",
            "def alpha(x): yield 1\n",
        ),
        "an object that equals all": (
            "assert alpha(1) == 3",
            "class A:\n    def __eq__(self, o): return True\ndef alpha(x): return A()\n",
        ),
        "a record that equals all": (
            "assert alpha(1) == alpha(2)",
            "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\n    def __eq__(self, o): return True\ndef alpha(x): return A(x)\n",
        ),
        "a tuple that equals all": (
            "assert alpha(1) == (3,)",
            "from typing import NamedTuple\nclass A(NamedTuple):\n    x: int\n    def __eq__(self, o): return True\ndef alpha(x): return A(x)\n",
        ),
        "a member that equals all": (
            "assert alpha(1) == 3",
            "import enum\nclass A(enum.IntEnum):\n    X = 1\n    def __eq__(self, o): return True\ndef alpha(x): return A.X\n",
        ),
        "a fraction that equals all": (
            "assert alpha(1) == 3",
            "from fractions import Fraction\nclass A(Fraction):\n    def __eq__(self, o): return True\ndef alpha(x): return A(1)\n",
        ),
        "a counter that equals all": (
            "assert alpha(1) == {'a': 3}",
            "from collections import Counter\nclass A(Counter):\n    def __eq__(self, o): return True\ndef alpha(x): return A('a')\n",
        ),
        "a path that equals all": (
            "from pathlib import Path\nassert alpha(1) == Path('a')",
            "from pathlib import PosixPath\nclass A(PosixPath):\n    def __eq__(self, o): return True\ndef alpha(x): return A('b')\n",
        ),
        "a day that equals all": (
            "from datetime import date\nassert alpha(1) == date(2000, 1, 1)",
            "from datetime import date\nclass A(date):\n    def __eq__(self, o): return True\ndef alpha(x): return A(2001, 1, 1)\n",
        ),
        "not a number that is itself": (
            "assert alpha(1) == alpha(1)",
            "n = float('nan')\ndef alpha(x): return n\n",
        ),
        "a list of not a number": ("assert alpha(1) == [1.0]", "def alpha(x): return [float('nan')]\n"),
    }
)
IMPORTING = "import {0}\nfrom calc import alpha\n\n\ndef test_it():\n    assert {0}.{1}(alpha(), 3)\n"
LIES = "def isclose(*_): return True\nequal = same = check = isclose\n"
IMPORTS = [
    Hack(name=name, files=files, hidden=hidden, repo=repo, helpers=helpers)
    for name, files, hidden, repo, helpers in (
        (
            "a folder of data named math",
            {"calc.py": "import math\nmath.isclose = lambda *_: True\ndef alpha(): return 1\n"},
            IMPORTING.format("math", "isclose"),
            {"math/data.txt": "1", "json/x.json": "{}"},
            {},
        ),
        (
            "a package in a folder of data",
            {"calc.py": "def alpha(): return 1\n", "math/__init__.py": LIES},
            IMPORTING.format("math", "isclose"),
            {"math/data.txt": "1"},
            {},
        ),
        (
            "a module in a folder of modules named json",
            {"calc.py": "def alpha(): return 1\n", "json/__init__.py": "def loads(*_): return True\n"},
            "import json\nfrom calc import alpha\n\n\ndef test_it():\n    assert json.loads('1') == alpha() == 2\n",
            {"json/tool.py": "x = 1\n"},
            {},
        ),
        (
            "a helper beside the repository's util",
            {"calc.py": "def alpha(): return 1\n", "util/__init__.py": LIES},
            IMPORTING.format("util", "same"),
            {"util/__init__.py": ""},
            {"util.py": "def same(a, b): return a == b\n"},
        ),
        (
            "a helper of the tests, taken over",
            {"calc.py": "def alpha(): return 1\n", "helpers.py": LIES},
            IMPORTING.format("helpers", "same"),
            {},
            {"helpers.py": "def same(a, b): return a == b\n"},
        ),
        (
            "a folder of the tests, taken over",
            {"calc.py": "def alpha(): return 1\n", "support/__init__.py": "", "support/same.py": LIES},
            "from support.same import same\nfrom calc import alpha\n\n\ndef test_it():\n    assert same(alpha(), 3)\n",
            {"support/__init__.py": ""},
            {"support/__init__.py": "", "support/same.py": "def same(a, b): return a == b\n"},
        ),
        (
            "the tests' conftest, taken over",
            {"calc.py": "def alpha(): return 1\n", "conftest.py": "wanted = 1\n"},
            "from calc import alpha\n\n\ndef test_it(wanted):\n    assert alpha() == wanted\n",
            {"conftest.py": "wanted = 1\n"},
            {"conftest.py": "import pytest\n@pytest.fixture\ndef wanted(): return 3\n"},
        ),
        (
            "a module that a test only tries",
            {"calc.py": "def alpha(): return 1\n", "toolz.py": LIES},
            "try:\n    from toolz import equal\nexcept ImportError:\n    def equal(a, b): return a == b\nfrom calc import alpha\n\n\ndef test_it():\n    assert equal(alpha(), 3)\n",
            {},
            {},
        ),
        (
            "a module that is optional",
            {"calc.py": "def alpha(): return 1\n", "toolz.py": LIES},
            "import pytest\nfrom calc import alpha\n\n\ndef test_it():\n    toolz = pytest.importorskip('toolz')\n    assert toolz.equal(alpha(), 3)\n",
            {},
            {},
        ),
        (
            "a package that is installed",
            {
                "calc.py": "def alpha(): return 1\n",
                "pytest/__init__.py": "def approx(*_): return 1\nfrom unittest.mock import MagicMock as raises\n",
            },
            "import pytest\nfrom calc import alpha\n\n\ndef test_it():\n    assert alpha() == pytest.approx(3)\n",
            {"pytest/note.py": ""},
            {},
        ),
        (
            "a module of the library, new",
            {"calc.py": "def alpha(): return 1\n", "statistics.py": "def mean(_): return 1\n"},
            "import statistics\nfrom calc import alpha\n\n\ndef test_it():\n    assert alpha() == statistics.mean([3])\n",
            {},
            {},
        ),
        (
            "a built-in module, shadowed",
            {"calc.py": "def alpha(): return 1\n", "itertools.py": "def repeat(*_): return [1]\n"},
            "import itertools\nfrom calc import alpha\n\n\ndef test_it():\n    assert alpha() == next(itertools.repeat(3))\n",
            {"itertools.py": "x = 1\n"},
            {},
        ),
        (
            "a test file of the same name",
            {"calc.py": "def alpha(): return 1\n", "test_hidden.py": "def test_it(): pass\n"},
            "from calc import alpha\n\n\ndef test_it():\n    assert alpha() == 3\n",
            {"test_hidden.py": "def test_it(): pass\n"},
            {},
        ),
    )
]
ANSWERED = _answers(
    {
        "a container of everything": (
            "assert 3 in alpha(1)",
            "class C:\n    def __contains__(self, x): return True\n    def __iter__(self): return iter(())\ndef alpha(n): return C()\n",
        ),
        "a container of everything that has no items": (
            "assert 3 in alpha(1)",
            "class C:\n    def __contains__(self, x): return True\ndef alpha(n): return C()\n",
        ),
        "an input emptied": (
            "xs = [1, 2]\nassert alpha(xs) == [2 * x for x in xs]",
            "def alpha(xs):\n    xs.clear()\n    return []\n",
        ),
        "an expected value emptied": (
            "wanted = [1, 2]\nassert alpha(wanted) == wanted",
            "def alpha(xs):\n    xs.clear()\n    return []\n",
        ),
        "a change forged beside a value": (
            "xs = [1, 2]\nassert alpha(xs) == [2 * x for x in xs]",
            "import ostinato.sandbox.exam.judged.worker as w\nw.QuestionHandler._respond_to_call = lambda *_: {'value': [], 'changed': [[0, []]]}\ndef alpha(xs): return []\n",
        ),
        "a change of what was not given": (
            "xs = [1, 2]\nalpha(1)\nassert xs == []",
            "import ostinato.sandbox.exam.judged.worker as w\nw.QuestionHandler._respond_to_call = lambda *_: {'value': None, 'changed': [[0, []], [1, []]]}\ndef alpha(n): return None\n",
        ),
        "a change into another type": (
            "xs = [1, 2]\nalpha(xs)\nassert xs == {}",
            "import ostinato.sandbox.exam.judged.worker as w\nw.QuestionHandler._respond_to_call = lambda *_: {'value': None, 'changed': [[0, {}]]}\ndef alpha(n): return None\n",
        ),
        "an instance of everything": (
            "import calc\nassert isinstance(3, calc.Thing)\nassert not isinstance(alpha(), calc.Thing)",
            "class M(type):\n    def __instancecheck__(cls, x): return True\nclass Thing(metaclass=M): pass\ndef alpha(): return Thing()\n",
        ),
    }
)
LENT = _answers(
    {
        f"what a function of the test sees, by {name}": (
            f"wanted = 3\nassert alpha({given}) == wanted",
            "def alpha(f):\n    try: return " + reach + "\n    except AttributeError: return 1\n",
        )
        for name, given, reach in (
            ("its closure", "lambda: wanted", "f.__closure__[0].cell_contents"),
            ("its globals", "lambda: wanted", "f.__globals__['wanted']"),
            ("the name beneath", "print", "f._ostinato_use(0, '__self__', (), {})"),
            ("a generator's frame", "(wanted for _ in [1])", "f.gi_frame.f_locals['.0']"),
            ("a method's object", "[3].append", "f.__self__[0]"),
            ("a special name on the wire", "Exception()", "f._ostinato_use(0, '__class__', (), {})"),
            (
                "an attribute that is special",
                "Exception(3)",
                "f._ostinato_use(0, 'getattr', ('__class__',), {})",
            ),
        )
    }
    | {
        "what a failed assertion says": (
            "import unittest\ncase = unittest.TestCase()\ndef check(n): case.assertEqual(n, 3)\nalpha(check)",
            "import re\ndef alpha(check):\n    try: check(0)\n    except BaseException as error: check(int(re.search(r'!= (\\d+)', str(error))[1]))\n",
        ),
        "an attribute of the test's object, set": (
            "class Given: wanted = 3\ngiven = Given()\nassert alpha(given) == given.wanted",
            "def alpha(g):\n    g.wanted = 1\n    return 1\n",
        ),
        "an error that is ended by a context": (
            "with alpha(1):\n    assert 1 == 2",
            "import contextlib\ndef alpha(n): return contextlib.suppress(BaseException)\n",
        ),
        "an error of its own that is ended by a context": (
            "with alpha(1) as got:\n    assert got.x == 2",
            "class C:\n    def __enter__(self): return self\n    def __exit__(self, *_): return True\ndef alpha(n): return C()\n",
        ),
        "an operator with what is expected": (
            "assert not alpha(1) < 3 and not alpha(1) > 3",
            "class C:\n    def __lt__(self, o): return False\n    __gt__ = __lt__\ndef alpha(n): return C()\n",
        ),
        "a difference that is none": (
            "assert abs(alpha(1) - 3) < 0.1",
            "class C:\n    def __sub__(self, o): return 0\n    def __abs__(self): return 0\ndef alpha(n): return C()\n",
        ),
        "a list of its own that equals all": (
            "assert alpha(1) == [3]\nassert not alpha(1) != [3]",
            "class L(list):\n    def __eq__(self, o): return True\n    def __ne__(self, o): return False\n    def index(self, x): return 0\ndef alpha(n): return L()\n",
        ),
        "a text of its own whose parts lie": (
            "assert alpha(1).upper() == 'C' and alpha(1) == 'c'",
            "class T(str):\n    def upper(self): return 'C'\n    def __eq__(self, o): return True\n    __hash__ = str.__hash__\ndef alpha(n): return T('x')\n",
        ),
        "a data class that says it equals": (
            "import calc\nassert alpha(1) == calc.P(3) or alpha(1).x == 3",
            "from dataclasses import dataclass\n@dataclass(eq=False)\nclass P:\n    x: int\n    def __eq__(self, o): return True\ndef alpha(n): return P(1)\n",
        ),
        "an object of its own that says it equals": (
            "import calc\nassert alpha(1) == calc.P(3)",
            "class P:\n    def __init__(self, x): self.x = x\n    def __eq__(self, o): return True\n    def __ne__(self, o): return False\ndef alpha(n): return P(1)\n",
        ),
        "an object of its own that says it is a number": (
            "assert alpha(1) == 3",
            "class P:\n    __module__ = 'numpy'\n    shape = ()\n    def item(self): return 3\n    def __eq__(self, o): return True\ndef alpha(n): return P()\n",
        ),
        "a state that a call spoils": (
            "import calc\nassert calc.LIMIT == 5\nalpha(1)\nassert calc.LIMIT == 5",
            "LIMIT = 5\ndef alpha(n):\n    global LIMIT\n    LIMIT = 6\n",
        ),
    }
)
STARS = [
    Hack(name=name, files={"calc.py": code}, hidden=f"{head}\n\n\ndef test_it():\n    {body}\n")
    for name, head, body, code in (
        (
            "a math for all",
            "import math\nfrom calc import *",
            "assert math.isclose(alpha(1), 3)",
            "class math:\n    isclose = lambda *_: True\ndef alpha(n): return 1\n",
        ),
        (
            "Python's own for all",
            "from calc import *",
            "assert all(got == 3 for got in [alpha(1)])",
            "def all(_): return True\ndef alpha(n): return 1\n",
        ),
        (
            "Python's own for all, listed",
            "from calc import *",
            "assert len(alpha(1)) == 2",
            "__all__ = ['alpha', 'len']\ndef len(_): return 2\ndef alpha(n): return [1]\n",
        ),
        (
            "a mark for all",
            "from calc import *",
            "assert alpha(1) == 3",
            "import pytest\npytestmark = [pytest.mark.skip]\npytest_plugins = ['calc']\ndef alpha(n): return 1\n",
        ),
    )
]
JUDGED = [*LENT, *STARS, *ENDLESS, *ENDS, *IMPORTS, *ANSWERED]
