# ruff: noqa: E501
"""Honest functions that answer with more than numbers and lists, each with the test that a person would write.

All of them are one exam: `calc.py` has a function a row, the hidden tests a test a row.
"""

LIBRARY: dict[str, tuple[str, str]] = {
    "a counter": (
        "from collections import Counter\ndef {f}(s): return Counter(s)",
        "from collections import Counter\nassert {f}('aab') == {{'a': 2, 'b': 1}} == Counter('aab')\nassert {f}('aab').most_common(1) == [('a', 2)]\nassert {f}('')['x'] == 0",
    ),
    "a defaultdict": (
        "from collections import defaultdict\ndef {f}(words):\n    d = defaultdict(list)\n    for w in words: d[w[0]].append(w)\n    return d",
        "assert {f}(['ab', 'ac', 'b']) == {{'a': ['ab', 'ac'], 'b': ['b']}}",
    ),
    "a defaultdict of its own": (
        "from collections import defaultdict\ndef {f}(): return defaultdict(lambda: 7, a=1)",
        "assert {f}() == {{'a': 1}}",
    ),
    "an ordered dict": (
        "from collections import OrderedDict\ndef {f}(d): return OrderedDict(sorted(d.items()))",
        "assert list({f}({{'b': 1, 'a': 2}})) == ['a', 'b']",
    ),
    "a deque": (
        "from collections import deque\ndef {f}(n): return deque(range(n), maxlen=2)",
        "assert list({f}(5)) == [3, 4] and {f}(5).maxlen == 2",
    ),
    "an int enumeration": (
        "import enum\nclass Level(enum.IntEnum):\n    LOW = 1\n    HIGH = 2\ndef {f}(n): return Level.HIGH if n else Level.LOW",
        "assert {f}(1) == 2 and {f}(0) < {f}(1) and {f}(1).name == 'HIGH'",
    ),
    "an enumeration that the test imports": (
        "import enum\nclass Color(enum.Enum):\n    RED = 'r'\n    BLUE = 'b'\ndef {f}(n): return Color(n)",
        "from calc import Color\nassert {f}('r') is Color.RED and {f}('b') == Color.BLUE != Color.RED\nassert {f}('r').value == 'r'",
    ),
    "a string enumeration": (
        "import enum\nclass Word(enum.StrEnum):\n    YES = 'yes'\ndef {f}(): return Word.YES",
        "assert {f}() == 'yes' and {f}().upper() == 'YES'",
    ),
    "a flag": (
        "import enum\nclass Can(enum.Flag):\n    READ = 1\n    WRITE = 2\ndef {f}(): return Can.READ | Can.WRITE",
        "assert {f}().value == 3",
    ),
    "a fraction": (
        "from fractions import Fraction\ndef {f}(a, b): return Fraction(a, b)",
        "from fractions import Fraction\nassert {f}(2, 4) == Fraction(1, 2) == 0.5\nassert {f}(Fraction(1, 3), 2) == Fraction(1, 6)",
    ),
    "a decimal": (
        "from decimal import Decimal\ndef {f}(a): return Decimal(a).quantize(Decimal('0.01'))",
        "from decimal import Decimal\nassert {f}('1.005') == Decimal('1.00') and str({f}('2')) == '2.00'",
    ),
    "a complex number": ("import cmath\ndef {f}(x): return cmath.sqrt(x)", "assert {f}(-4) == 2j"),
    "a data class": (
        "from dataclasses import dataclass\n@dataclass\nclass Point:\n    x: int\n    y: int = 0\ndef {f}(x): return Point(x)",
        "from calc import Point\nimport dataclasses\nassert {f}(3) == Point(3) and {f}(3).x == 3\nassert dataclasses.asdict({f}(3)) == {{'x': 3, 'y': 0}}",
    ),
    "a frozen data class in a set": (
        "from dataclasses import dataclass\n@dataclass(frozen=True, order=True)\nclass Key:\n    n: int\ndef {f}(ns): return {{Key(n) for n in ns}}",
        "assert sorted(k.n for k in {f}([2, 1, 2])) == [1, 2]",
    ),
    "a data class given back": (
        "from dataclasses import dataclass\n@dataclass\nclass Box:\n    w: int\n    h: int\n    def area(self): return self.w * self.h\ndef box(w, h): return Box(w, h)\ndef {f}(b): return b.area()",
        "from calc import box\nassert {f}(box(2, 3)) == 6",
    ),
    "a data class with slots": (
        "from dataclasses import dataclass\n@dataclass(slots=True)\nclass Slot:\n    n: int\ndef {f}(n): return [Slot(n)]",
        "assert {f}(2)[0].n == 2",
    ),
    "a named tuple": (
        "from collections import namedtuple\nPair = namedtuple('Pair', 'left right')\ndef {f}(a, b): return Pair(a, b)",
        "from calc import Pair\nassert {f}(1, 2) == (1, 2) == Pair(1, 2)\nassert {f}(1, 2).right == 2\nleft, right = {f}(3, 4)\nassert left == 3",
    ),
    "a typed named tuple": (
        "from typing import NamedTuple\nclass Row(NamedTuple):\n    key: str\n    size: int = 0\ndef {f}(k): return Row(k)._replace(size=2)",
        "assert {f}('a') == ('a', 2) and {f}('a')._asdict() == {{'key': 'a', 'size': 2}}",
    ),
    "a moment": (
        "from datetime import datetime\ndef {f}(s): return datetime.fromisoformat(s)",
        "from datetime import datetime\nassert {f}('2026-01-02T03:04:05') == datetime(2026, 1, 2, 3, 4, 5)",
    ),
    "a moment with a zone": (
        "from datetime import datetime, timezone, timedelta\ndef {f}(d): return d.astimezone(timezone(timedelta(hours=2)))",
        "from datetime import datetime, timezone\nd = datetime(2026, 1, 2, 3, tzinfo=timezone.utc)\nassert {f}(d) == d and {f}(d).hour == 5",
    ),
    "days": (
        "from datetime import date, timedelta\ndef {f}(d, n): return d + timedelta(days=n)",
        "from datetime import date\nassert {f}(date(2024, 2, 28), 2) == date(2024, 3, 1)",
    ),
    "a time of day": (
        "from datetime import time\ndef {f}(m): return time(*divmod(m, 60))",
        "from datetime import time\nassert {f}(61) == time(1, 1)",
    ),
    "a difference": (
        "def {f}(a, b): return b - a",
        "from datetime import date, timedelta\nassert {f}(date(2024, 1, 1), date(2024, 1, 3)) == timedelta(2)",
    ),
    "a path": (
        "from pathlib import Path\ndef {f}(p): return Path(p).with_suffix('.txt')",
        "from pathlib import Path\nassert {f}('a/b.py') == Path('a/b.txt') and {f}(Path('c')).name == 'c.txt'",
    ),
    "bytes": ("def {f}(s): return s.encode()[::-1]", "assert {f}('ab') == b'ba'"),
    "a bytearray": (
        "def {f}(n): return bytearray(n)",
        "assert {f}(2) == bytearray(2) and bytes({f}(2)) == b'\\0\\0'",
    ),
    "sets": (
        "def {f}(a, b): return a & b, frozenset(a | b)",
        "assert {f}({{1, 2}}, {{2, 3}}) == ({{2}}, frozenset({{1, 2, 3}}))",
    ),
    "a range": ("def {f}(n): return range(n)", "assert {f}(3) == range(3) and list({f}(3)) == [0, 1, 2]"),
    "keys of a dictionary": ("def {f}(d): return d.keys()", "assert {f}({{'a': 1}}) == {{'a'}}"),
    "values of a dictionary": (
        "def {f}(d): return d.values()",
        "assert list({f}({{'a': 1}})) == [1] and sum({f}({{'b': 2}})) == 2",
    ),
    "items of a dictionary": ("def {f}(d): return d.items()", "assert sorted({f}({{'a': 1}})) == [('a', 1)]"),
    "a generator": (
        "def {f}(n):\n    for i in range(n): yield i * i",
        "assert list({f}(3)) == [0, 1, 4]\ng = {f}(2)\nassert next(g) == 0 and next(g) == 1\nassert next(g, 'end') == 'end'\nassert sum({f}(4)) == 14",
    ),
    "a generator without end": (
        "def {f}():\n    a, b = 0, 1\n    while True:\n        yield a\n        a, b = b, a + b",
        "from itertools import islice\nassert list(islice({f}(), 7)) == [0, 1, 1, 2, 3, 5, 8]",
    ),
    "a generator that ends early": (
        "def {f}(xs):\n    for x in xs:\n        if x < 0: return\n        yield x",
        "assert [*{f}([1, 2, -1, 3])] == [1, 2]",
    ),
    "a generator that fails": (
        "def {f}():\n    yield 1\n    raise ValueError('two')",
        "g = {f}()\nassert next(g) == 1\nwith pytest.raises(ValueError, match='two'): next(g)",
    ),
    "a map": ("def {f}(xs): return map(str, xs)", "assert ','.join({f}([1, 2])) == '1,2'"),
    "a zip": ("def {f}(a, b): return zip(a, b)", "assert dict({f}('ab', [1, 2])) == {{'a': 1, 'b': 2}}"),
    "an enumerate": ("def {f}(s): return enumerate(s, 1)", "assert [*{f}('a')] == [(1, 'a')]"),
    "a reversed": ("def {f}(xs): return reversed(xs)", "assert [*{f}([1, 2])] == [2, 1]"),
    "groups": (
        "from itertools import groupby\ndef {f}(s): return ((k, len([*g])) for k, g in groupby(s))",
        "assert dict({f}('aab')) == {{'a': 2, 'b': 1}}",
    ),
    "a closure": (
        "def {f}(n):\n    def add(x): return x + n\n    return add",
        "assert {f}(2)(3) == 5\nadd = {f}(1)\nassert [add(i) for i in range(2)] == [1, 2]",
    ),
    "a partial": (
        "import functools\ndef {f}(n): return functools.partial(pow, n)",
        "assert {f}(2)(10) == 1024",
    ),
    "a memo": (
        "import functools\n@functools.cache\ndef {f}(n): return n if n < 2 else {f}(n - 1) + {f}(n - 2)",
        "assert {f}(60) == 1548008755920",
    ),
    "an object with state": (
        "class Account:\n    def __init__(self, n=0): self.balance = n\n    def pay(self, n):\n        if n > self.balance: raise ValueError('not enough')\n        self.balance -= n\n        return self\ndef {f}(n): return Account(n)",
        "a = {f}(10)\nassert a.balance == 10\nassert a.pay(3).pay(2).balance == 5\nwith pytest.raises(ValueError, match='not enough'): a.pay(9)\nassert a.balance == 5",
    ),
    "a class": (
        "class Stack:\n    limit = 3\n    def __init__(self): self._all = []\n    def push(self, x): self._all.append(x)\n    def pop(self): return self._all.pop()\n    def __len__(self): return len(self._all)\n    def __contains__(self, x): return x in self._all\n    def __iter__(self): return iter(self._all)\n    def __getitem__(self, i): return self._all[i]\n    @classmethod\n    def of(cls, *xs):\n        s = cls()\n        for x in xs: s.push(x)\n        return s\n{f} = Stack",
        "s = {f}()\nassert not s and len(s) == 0\ns.push(1)\ns.push(2)\nassert s and len(s) == 2 and 1 in s and 3 not in s and [*s] == [1, 2] and s[0] == 1\nassert s.pop() == 2\nwith pytest.raises(IndexError): {f}().pop()\nassert {f}.limit == 3 and [*{f}.of(4, 5)] == [4, 5]",
    ),
    "an object given back": (
        "class Node:\n    def __init__(self, v): self.v = v\ndef node(v): return Node(v)\ndef {f}(nodes): return sum(n.v for n in nodes)",
        "from calc import node\na = node(1)\nassert {f}([a, a, node(3)]) == 5",
    ),
    "one object": ("_one = object()\ndef {f}(): return _one", "assert {f}() is {f}() and {f}() == {f}()"),
    "a context": (
        "import contextlib\nlog_ = []\n@contextlib.contextmanager\ndef {f}(n):\n    log_.append(n)\n    yield n\n    log_.append(-n)\ndef log(): return log_",
        "from calc import log\nwith {f}(2) as n:\n    assert n == 2 and log() == [2]\nassert log() == [2, -2]",
    ),
    "a coroutine": (
        "import asyncio\nasync def {f}(n):\n    await asyncio.sleep(0)\n    return n * 2",
        "import asyncio\nassert asyncio.run({f}(3)) == 6\nasync def both(): return await asyncio.gather({f}(1), {f}(2))\nassert asyncio.run(both()) == [2, 4]",
    ),
    "a coroutine that fails": (
        "async def {f}(): raise KeyError('x')",
        "import asyncio\nwith pytest.raises(KeyError): asyncio.run({f}())",
    ),
    "a derived error": (
        "class ParseError(ValueError):\n    def __init__(self, text, at):\n        super().__init__(f'{{text}} at {{at}}')\n        self.at = at\ndef {f}(s): raise ParseError('odd', 3)",
        "from calc import ParseError\nwith pytest.raises(ValueError): {f}('')\nwith pytest.raises(ParseError, match='odd at 3') as found: {f}('')\nassert found.value.at == 3 and isinstance(found.value, ValueError)\ntry: {f}('')\nexcept ParseError as error: assert str(error) == 'odd at 3'\nelse: assert False",
    ),
    "a family of errors": (
        "class Base(Exception): pass\nclass Missing(Base, KeyError): pass\ndef {f}(): raise Missing('k')",
        "from calc import Base, Missing\nfor kind in (Base, Missing, KeyError, LookupError, Exception):\n    with pytest.raises(kind): {f}()\nassert issubclass(Missing, Base)\nwith pytest.raises(Base) as found: {f}()\nassert found.type is Missing",
    ),
    "a broken document": (
        "import json\ndef {f}(s): return json.loads(s)",
        "import json\nassert {f}('[1]') == [1]\nwith pytest.raises(ValueError): {f}('[')\nwith pytest.raises(json.JSONDecodeError) as found: {f}('[')\nassert found.value.pos == 1",
    ),
    "a file that is missing": (
        "def {f}(p): return open(p).read()",
        "import errno\nwith pytest.raises(FileNotFoundError) as found: {f}('/no/such')\nassert found.value.errno == errno.ENOENT\nwith pytest.raises(OSError): {f}('/no/such')",
    ),
    "text that is none": (
        "def {f}(b): return b.decode()",
        "with pytest.raises(UnicodeDecodeError): {f}(b'\\xff')\nwith pytest.raises(ValueError): {f}(b'\\xff')",
    ),
    "a key with its name": (
        "def {f}(d, k): return d[k]",
        "with pytest.raises(KeyError) as found: {f}({{}}, 'k')\nassert found.value.args == ('k',)",
    ),
    "the end of an iterator": (
        "def {f}(it): return next(iter(it))",
        "with pytest.raises(StopIteration): {f}([])\nassert {f}([1]) == 1",
    ),
    "an exit": (
        "import sys\ndef {f}(argv):\n    if not argv: sys.exit(2)\n    return 0",
        "assert {f}(['x']) == 0\nwith pytest.raises(SystemExit) as found: {f}([])\nassert found.value.code == 2",
    ),
    "a command line": (
        "import argparse\ndef {f}(argv):\n    parser = argparse.ArgumentParser()\n    parser.add_argument('n', type=int)\n    return vars(parser.parse_args(argv))",
        "assert {f}(['3']) == {{'n': 3}}\nwith pytest.raises(SystemExit): {f}(['x'])",
    ),
    "a namespace": ("import argparse\ndef {f}(): return argparse.Namespace(n=3)", "assert {f}().n == 3"),
    "a match": (
        "import re\ndef {f}(s): return re.match('(a)(b)?', s)",
        "assert {f}('ab').group(2) == 'b' and {f}('a').groups() == ('a', None) and {f}('x') is None",
    ),
    "not a number": (
        "def {f}(): return [float('nan'), float('inf'), -0.0]",
        "import math\na, b, c = {f}()\nassert math.isnan(a) and b == math.inf and math.copysign(1, c) == -1",
    ),
    "a type": ("def {f}(x): return type(x)", "assert {f}(1) is int and {f}('') is str"),
    "an ellipsis and a slice": (
        "def {f}(n): return ..., slice(n)",
        "assert {f}(2) == (..., slice(2)) and [1, 2, 3][{f}(2)[1]] == [1, 2]",
    ),
    "text of its own": (
        "class Name(str):\n    def shout(self): return self.upper()\ndef {f}(s): return Name(s)",
        "assert {f}('a') == 'a' and {f}('a') + 'b' == 'ab'",
    ),
    "a dictionary of its own": (
        "class Config(dict): pass\ndef {f}(): return Config(a=Config(b=1))",
        "assert {f}() == {{'a': {{'b': 1}}}} and {f}()['a']['b'] == 1",
    ),
    "keys that are tuples": (
        "def {f}(n): return {{(i, i + 1): {{i}} for i in range(n)}}",
        "assert {f}(2) == {{(0, 1): {{0}}, (1, 2): {{1}}}}",
    ),
    "large numbers": (
        "import math\ndef {f}(n): return math.factorial(n)",
        "import math\nassert {f}(100) == math.factorial(100) and {f}(1000) % 997 == 0",
    ),
    "files": (
        "def {f}(p, text):\n    with open(p, 'w') as file: return file.write(text)",
        "assert {f}('/tmp/out', 'abc') == 3",
    ),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor\ndef {f}(ns):\n    with ThreadPoolExecutor(4) as pool: return list(pool.map(abs, ns))",
        "assert {f}([-1, 2]) == [1, 2]",
    ),
    "words of a call": (
        "def {f}(*args, use=0, **kwargs): return args, use, sorted(kwargs)",
        "assert {f}(1, 2, use=3, self=4, module=5, name=6) == ((1, 2), 3, ['module', 'name', 'self'])",
    ),
    "a constant": ("{f} = {{'a': (1, 2)}}", "assert {f} == {{'a': (1, 2)}}"),
    "a proxy": (
        "from types import MappingProxyType\ndef {f}(): return MappingProxyType({{'a': 1}})",
        "assert {f}()['a'] == 1 and {f}() == {{'a': 1}}",
    ),
}


def written() -> tuple[str, str, tuple[str, ...]]:
    """Return the candidate's module, the hidden tests and their ids."""
    code, tests, ids = [], ["import pytest"], []
    for number, (function, test) in enumerate(LIBRARY.values()):
        name = f"f{number}"
        code.append(function.format(f=name))
        lines = "\n".join(f"    {line}" for line in test.format(f=name).splitlines())
        tests.append(f"def test_{name}():\n    from calc import {name}\n{lines}")
        ids.append(f"test_hidden.py::test_{name}")
    return "\n\n\n".join(code), "\n\n\n".join(tests), tuple(ids)
