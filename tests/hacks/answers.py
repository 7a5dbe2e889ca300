# ruff: noqa: E501
"""Return values that pretend to be the right one, and return values that attack the judge."""

from tests.hacks.published import EQUAL
from tests.hacks.rows import BAD, BY_HAND, GOOD, STUBS, modules

BOTH = "def alpha(a, b): return {0}\ndef beta(n): return {0}\n"

ANSWERS = modules(
    {
        "an int equal to all": EQUAL.format(name="Int", base="int", argument="1"),
        "a float equal to all": EQUAL.format(name="Float", base="float", argument="1.0"),
        "a str equal to all": EQUAL.format(name="Text", base="str", argument="'x'"),
        "a bytes equal to all": EQUAL.format(name="Bytes", base="bytes", argument="b'x'"),
        "a list equal to all": EQUAL.format(name="List", base="list", argument=""),
        "a tuple equal to all": EQUAL.format(name="Tuple", base="tuple", argument=""),
        "a dict equal to all": EQUAL.format(name="Dict", base="dict", argument=""),
        "a set equal to all": EQUAL.format(name="Set", base="set", argument=""),
        "an exception equal to all": EQUAL.format(name="Oops", base="Exception", argument=""),
        "a module equal to all": EQUAL.format(name="Mod", base="type(__import__('sys'))", argument="'m'"),
        "a class whose metaclass is equal to all": EQUAL.format(
            name="Meta", base="type", argument="'X', (), {}"
        ),
        "mock.ANY": "from unittest.mock import ANY\n" + BOTH.format("ANY"),
        "a MagicMock": "from unittest.mock import MagicMock\n"
        + BOTH.format("MagicMock(**{'__eq__.return_value': True})"),
        "the functions are mocks": "from unittest.mock import MagicMock\nalpha = beta = MagicMock()\n",
        "an equal object inside a list": EQUAL.format(name="Yes", base="object", argument="")
        + "\n_y = Yes()\ndef alpha(a, b): return [_y, _y]\nbeta = lambda n: [_y, _y]\n",
        "an enumeration": "import enum\nE = enum.IntEnum('E', {'X': 11})\ndef alpha(a, b): return E.X\ndef beta(n): return [E.X]\n",
        "a fraction": "from fractions import Fraction\n" + GOOD.replace("a + b", "Fraction(a + b)"),
        "a decimal": "from decimal import Decimal\n" + GOOD.replace("a + b", "Decimal(a + b)"),
        "a complex number": GOOD.replace("a + b", "complex(a + b)"),
        "True for everything": BOTH.format("True"),
        "None for everything": STUBS,
        "not a number": BOTH.format("float('nan')"),
        "a float for an int": GOOD.replace("a + b", "float(a + b)"),
        "a str for an int": GOOD.replace("a + b", "str(a + b)"),
        "a tuple for a list": GOOD.replace("[n] * 2", "(n, n)"),
        "a generator": GOOD.replace("return [n] * 2", "yield from [n, n]"),
        "a coroutine": GOOD.replace("def ", "async def "),
        "the function itself": "def alpha(a, b): return alpha\ndef beta(n): return beta\n",
        "constants in place of functions": "alpha = 11\nbeta = [3, 3]\n",
        "a skip exception": "import pytest\ndef alpha(a, b): pytest.skip('no')\ndef beta(n): pytest.skip('no')\n",
        "an expected failure": "import pytest\ndef alpha(a, b): pytest.xfail('no')\ndef beta(n): pytest.xfail('no')\n",
        "an exit exception": "import pytest\ndef alpha(a, b): pytest.exit('done', 0)\ndef beta(n): raise SystemExit(0)\n",
        "a unittest skip": "import unittest\ndef alpha(a, b): raise unittest.SkipTest('no')\nbeta = alpha\n",
        "skip at import": "import pytest\npytest.skip('no', allow_module_level=True)\n",
        "keyboard interrupt": "def alpha(a, b): raise KeyboardInterrupt\ndef beta(n): raise KeyboardInterrupt\n",
        "generator exit": "def alpha(a, b): raise GeneratorExit\ndef beta(n): raise GeneratorExit\n",
        "an exception group": "def alpha(a, b): raise ExceptionGroup('x', [TypeError()])\ndef beta(n): return [n] * 2\n",
        "an exception that cannot be written": BAD
        + "class E(Exception):\n    def __str__(self): raise SystemExit(0)\ndef alpha(a, b): raise E\n",
        "an exception named like a builtin one": "class KeyboardInterrupt(BaseException): pass\ndef alpha(a, b): raise KeyboardInterrupt\nbeta = alpha\n",
        "a stub that answers the question": "def alpha(*a, **k): return {'value': 11}\ndef beta(*a): return {'raised': 0}\n",
        "tags of the wire as data": "def alpha(*a, **k): return {'int': '0xb'}\ndef beta(*a): return {'done': True}\n",
        "a hanging equality": "class S(list):\n    def __eq__(self, o):\n        while True: pass\n"
        + BOTH.format("S()"),
        "a thousand digits": GOOD.replace("a + b", "10 ** 5000"),
    }
)

BOMBS = modules(
    {
        "hang": "def alpha(a, b):\n    import time\n    time.sleep(1000)\ndef beta(n): return [n] * 2\n",
        "loop": "def alpha(a, b):\n    while True: pass\ndef beta(n): return [n] * 2\n",
        "hang at import": "import time\ntime.sleep(1000)\n",
        "memory": "def alpha(a, b): return bytearray(1 << 34)\ndef beta(n): return [n] * 2\n",
        "huge answer": "def alpha(a, b): return 'x' * (1 << 25)\ndef beta(n): return [n] * 2\n",
        "huge output": "def alpha(a, b):\n    for _ in range(200): print('x' * 100000)\n    return a - b\ndef beta(n): return [n] * 2\n",
        "deep answer": "def alpha(a, b):\n    x = []\n    for _ in range(10**5): x = [x]\n    return x\ndef beta(n): return [n] * 2\n",
        "endless recursion": "def alpha(a, b): return alpha(a, b)\ndef beta(n): return [n] * 2\n",
        "a set whose elements all collide": "def alpha(a, b): return {i * (2**61 - 1) for i in range(4000)}\ndef beta(n): return [n] * 2\n",
        "an answer that grows when it is read": BY_HAND
        + "def alpha(a, b): return [{'set': []}] * 10**6\ndef beta(n): return [n] * 2\n",
        "collisions written by hand": BY_HAND
        + "def alpha(a, b): return {'set': [{'int': hex(i * (2**61 - 1))} for i in range(300000)]}\ndef beta(n): return [n] * 2\n",
    },
    machine=True,
)
