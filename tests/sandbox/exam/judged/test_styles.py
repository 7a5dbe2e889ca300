# ruff: noqa: E501
"""The solutions and the styles of tests that people write, each with a right and a wrong module: none is refused.

Covers sandbox/exam/judged/lent.py, sandbox/exam/judged/questions.py and sandbox/exam/judged/references.py.
"""

from pathlib import Path

import pytest
from tests.sandbox.exam.judged.test_judged_suites import Way, verified

from ostinato.sandbox import Backend
from ostinato.types import Grade

ACCOUNT = """
from dataclasses import dataclass, field
@dataclass
class Account:
    owner: str
    balance: int = 0
    log: list = field(default_factory=list)
    def pay(self, n):
        if n > self.balance: raise ValueError('not enough')
        self.balance -= n
        self.log.append(-n)
        return self
    @property
    def empty(self): return self.balance == 0
    @classmethod
    def opened(cls, owner): return cls(owner, 10)
    @staticmethod
    def currency(): return 'EUR'
    def __str__(self): return f'{self.owner}: {self.balance}'
def account(n): return Account('ada', n)
def drain(a):
    a.balance = 0
    return a
"""
WORDS = """
class Words(list):
    limit = 9
    @property
    def longest(self): return max(self, key=len)
    def total(self): return sum(map(len, self))
    def grow(self): self.append('grown')
class Table(dict):
    @property
    def width(self): return len(self)
    def put(self, key): self[key] = key * 2
class Name(str):
    @property
    def initials(self): return ''.join(w[0] for w in self.split())
class Money(int):
    @property
    def cents(self): return self * 100
class Tags(set):
    def joined(self): return ','.join(sorted(self))
def words(text): return Words(text.split())
"""
NODE = """
class Node:
    kind = 'node'
    def __init__(self, value, *children):
        self.value = value
        self.children = list(children)
    def total(self): return self.value + sum(c.total() for c in self.children)
    def __lt__(self, other): return self.value < other.value
    def __add__(self, other): return Node(self.value + other.value)
    def __repr__(self): return f'Node({self.value})'
class Leaf(Node): pass
"""
SOLUTIONS = {
    "a dataclass with methods": Way(
        code=ACCOUNT,
        wrong=("self.balance -= n", "self.balance -= 1"),
        tests="import pytest\nfrom calc import account\ndef test_it():\n    a = account(10)\n    assert a.pay(3) is a\n    assert a.pay(2).balance == 5 == a.balance\n    assert a.log == [-3, -2]\n    with pytest.raises(ValueError, match='enough'): a.pay(9)\n    assert a.balance == 5\n",
    ),
    "a dataclass with properties": Way(
        code=ACCOUNT,
        wrong=("self.balance == 0", "self.balance == 1"),
        tests="from calc import account\ndef test_it(): assert account(0).empty and not account(5).empty\n",
    ),
    "a dataclass made by its class": Way(
        code=ACCOUNT,
        wrong=("cls(owner, 10)", "cls(owner, 1)"),
        tests="from calc import Account\ndef test_it():\n    assert Account.opened('bob') == Account('bob', 10)\n    assert Account.opened('bob') != Account('bob', 9)\n    assert (Account.currency(), Account.opened('x').currency()) == ('EUR', 'EUR')\n",
    ),
    "a dataclass changed by a function": Way(
        code=ACCOUNT,
        wrong=("a.balance = 0", "a.balance = 1"),
        tests="from calc import account, drain\ndef test_it():\n    a = account(4)\n    assert drain(a) is a\n    assert a.balance == 0\n",
    ),
    "a dataclass changed by its test": Way(
        code=ACCOUNT,
        wrong=("self.balance == 0", "self.balance == 7"),
        tests="from calc import account\ndef test_it():\n    a = account(7)\n    a.balance = 0\n    assert a.empty\n    a.log.append(5)\n    a.balance = 2\n    assert a.pay(1).log == [5, -1]\n",
    ),
    "the text of a dataclass": Way(
        code=ACCOUNT,
        wrong=("{self.owner}:", "{self.owner};"),
        tests="from calc import account\ndef test_it():\n    assert str(account(3)) == 'ada: 3'\n    assert repr(account(3)) == \"Account(owner='ada', balance=3, log=[])\"\n",
    ),
    "dataclasses in one another": Way(
        code="from dataclasses import dataclass, replace, asdict\n@dataclass(frozen=True, order=True)\nclass Point:\n    x: int\n    y: int\n    def moved(self, d): return replace(self, x=self.x + d)\n@dataclass(frozen=True)\nclass Line:\n    a: Point\n    b: Point\n    @property\n    def width(self): return self.b.x - self.a.x\n",
        wrong=("self.b.x - self.a.x", "self.a.x - self.b.x"),
        tests="import dataclasses\nfrom calc import Line, Point\ndef test_it():\n    line = Line(Point(1, 2), Point(4, 2).moved(1))\n    assert line.width == 4\n    assert line == Line(Point(1, 2), Point(5, 2))\n    assert dataclasses.asdict(line) == {'a': {'x': 1, 'y': 2}, 'b': {'x': 5, 'y': 2}}\n    assert {line.a, Point(1, 2)} == {Point(1, 2)}\n    assert sorted([Point(2, 0), Point(1, 9)])[0].y == 9\n    assert [f.name for f in dataclasses.fields(line.a)] == ['x', 'y']\n    assert dataclasses.replace(line.a, y=7).moved(1) == Point(2, 7)\n",
    ),
    "a dataclass with private fields": Way(
        code="from dataclasses import dataclass, field\n@dataclass\nclass Cache:\n    size: int\n    _items: dict = field(default_factory=dict, repr=False, compare=False)\n    def put(self, k, v): self._items[k] = v\n    def get(self, k): return self._items.get(k)\n    def __len__(self): return len(self._items)\n    def __contains__(self, k): return k in self._items\n    def __iter__(self): return iter(self._items)\n",
        wrong=("self._items[k] = v", "pass"),
        tests="from calc import Cache\ndef test_it():\n    c = Cache(3)\n    c.put('a', 1)\n    assert c.get('a') == 1 and c.get('b') is None\n    assert len(c) == 1 and 'a' in c and [*c] == ['a']\n    assert c == Cache(3)\n",
    ),
    "a list of its own with properties": Way(
        code=WORDS,
        wrong=("key=len", "key=str"),
        tests="from calc import words\ndef test_it():\n    w = words('aaa b zz')\n    assert w == ['aaa', 'b', 'zz']\n    assert w.longest == 'aaa' and w.total() == 6 and w[0] == 'aaa' and len(w) == 3\n",
    ),
    "a list of its own that grows": Way(
        code=WORDS,
        wrong=("append('grown')", "append('')"),
        tests="from calc import Words\ndef test_it():\n    w = Words(['a'])\n    w.grow()\n    assert w == ['a', 'grown'] and list(w) == ['a', 'grown'] and 'grown' in w\n    w.append('bb')\n    assert w.total() == 8 and w[-1] == 'bb'\n    assert isinstance(w, list) and isinstance(w, Words) and Words.limit == 9\n",
    ),
    "a dictionary of its own with properties": Way(
        code=WORDS,
        wrong=("key * 2", "key * 3"),
        tests="from calc import Table\ndef test_it():\n    t = Table(a='b')\n    t.put('c')\n    assert t == {'a': 'b', 'c': 'cc'} and t.width == 2 and t['c'] == 'cc' and sorted(t) == ['a', 'c']\n    t['d'] = 1\n    assert t.width == 3\n",
    ),
    "a text of its own with properties": Way(
        code=WORDS,
        wrong=("w[0] for", "w[-1] for"),
        tests="from calc import Name\ndef test_it():\n    n = Name('Ada Lovelace')\n    assert n == 'Ada Lovelace' and n.initials == 'AL' and n.upper() == 'ADA LOVELACE' and isinstance(n, str)\n",
    ),
    "a number of its own with properties": Way(
        code=WORDS,
        wrong=("self * 100", "self * 10"),
        tests="from calc import Money\ndef test_it(): assert Money(3) == 3 and Money(3).cents == 300 and Money(3) + 1 == 4\n",
    ),
    "a set of its own with methods": Way(
        code=WORDS,
        wrong=("sorted(self)", "sorted(self)[:1]"),
        tests="from calc import Tags\ndef test_it():\n    t = Tags('ba')\n    assert t == {'a', 'b'} and t.joined() == 'a,b'\n    t.add('c')\n    assert t.joined() == 'a,b,c'\n",
    ),
    "a named tuple with methods": Way(
        code="from typing import NamedTuple\nclass P(NamedTuple):\n    x: int\n    y: int\n    @property\n    def norm(self): return self.x + self.y\n    def up(self): return self._replace(y=self.y + 1)\n",
        wrong=("self.x + self.y", "self.x - self.y"),
        tests="from calc import P\ndef test_it():\n    assert P(1, 2).norm == 3 and P(1, 2).up() == (1, 3) == P(1, 3)\n    x, y = P(1, 2).up()\n    assert (x, y, P(3, 4).up().norm) == (1, 3, 8)\n",
    ),
    "an enumeration with methods": Way(
        code="import enum\nclass Side(enum.Enum):\n    LEFT = 1\n    RIGHT = 2\n    @property\n    def other(self): return Side.RIGHT if self is Side.LEFT else Side.LEFT\n    def label(self): return self.name.title()\n    @classmethod\n    def parse(cls, text): return cls[text.upper()]\n",
        wrong=("self.name.title()", "self.name"),
        tests="from calc import Side\ndef test_it():\n    assert Side.LEFT.other is Side.RIGHT and Side.LEFT.label() == 'Left'\n    assert Side.parse('right') == Side.RIGHT and [s.name for s in Side] == ['LEFT', 'RIGHT']\n    assert Side(1) is Side.LEFT and Side['LEFT'] is Side.LEFT and len(Side) == 2 and Side.LEFT in Side\n",
    ),
    "scalars of numpy": Way(
        code="import numpy as np\ndef total(xs): return np.array(xs).sum()\ndef mean(xs): return np.float32(np.mean(xs))\ndef flags(xs): return {'any': np.any(xs), 'most': np.int64(max(xs)), 'all': [np.bool_(True)]}\n",
        wrong=(".sum()", ".prod()"),
        tests="import pytest\nfrom calc import flags, mean, total\ndef test_it():\n    assert total([1, 2, 4]) == 7 and mean([1, 2]) == pytest.approx(1.5)\n    assert flags([0, 3]) == {'any': True, 'most': 3, 'all': [True]}\n",
    ),
    "an object with state": Way(
        code=NODE,
        wrong=("self.value + sum", "sum"),
        tests="from calc import Leaf, Node\ndef test_it():\n    n = Node(1, Leaf(2), Node(3, Leaf(4)))\n    assert n.total() == 10 and n.children[0].value == 2\n    n.children[0].value = 5\n    assert n.total() == 13\n    assert isinstance(n.children[0], Leaf) and isinstance(n.children[0], Node) and not isinstance(n, Leaf)\n    assert issubclass(Leaf, Node) and not issubclass(Node, Leaf)\n",
    ),
    "objects in order and added": Way(
        code=NODE,
        wrong=("self.value + other.value)", "other.value)"),
        tests="from calc import Node\ndef test_it():\n    assert (Node(1) + Node(2)).value == 3\n    assert Node(1) < Node(2) and [n.value for n in sorted([Node(3), Node(2)])] == [2, 3]\n",
    ),
    "objects that say when they are equal": Way(
        code="class Vec:\n    def __init__(self, x, y): self.x, self.y = x, y\n    def __eq__(self, o): return isinstance(o, Vec) and (self.x, self.y) == (o.x, o.y)\n    def __hash__(self): return hash((self.x, self.y))\n    def __add__(self, o): return Vec(self.x + o.x, self.y + o.y)\nclass Node:\n    __slots__ = ('v', 'kids')\n    def __init__(self, v, *kids): self.v, self.kids = v, kids\n    def __eq__(self, o): return (self.v, self.kids) == (o.v, o.kids)\ndef parse(text): return Node('+', *map(Node, text.split('+')))\n",
        wrong=("self.y + o.y", "self.y"),
        tests="from calc import Node, Vec, parse\ndef test_it():\n    assert Vec(1, 2) + Vec(1, 1) == Vec(2, 3) and Vec(1, 2) != Vec(1, 3) and Vec(1, 2) != 3\n    assert Vec(1, 2) in [Vec(1, 2)] and len({Vec(1, 2), Vec(1, 2)}) == 1\n    assert parse('1+2') == Node('+', Node('1'), Node('2')) != Node('+', Node('1'), Node('3'))\n",
    ),
    "arrays of numpy": Way(
        code="import numpy as np\ndef scale(xs): return np.array(xs) * 2\n",
        wrong=("* 2", "* 3"),
        tests="from calc import scale\ndef test_it(): assert scale([1, 2]).tolist() == [2, 4] == list(scale([1, 2])) and scale([1]).shape == (1,)\n",
    ),
    "a counter of its own": Way(
        code="count = 0\nseen = []\ndef hit():\n    global count\n    count += 1\n    seen.append(count)\ndef reset():\n    global count\n    count = 0\n    seen.clear()\n",
        wrong=("count += 1", "count = 1"),
        tests="import calc\ndef test_it():\n    calc.reset()\n    assert calc.count == 0\n    calc.hit()\n    calc.hit()\n    assert calc.count == 2 and calc.seen == [1, 2]\n",
    ),
    "an asynchronous queue": Way(
        code="import asyncio\nclass Box:\n    def __init__(self): self.queue = asyncio.Queue()\n    async def put(self, x): await self.queue.put(x)\n    async def get(self): return await self.queue.get()\n    async def __aenter__(self):\n        await self.put('in')\n        return self\n    async def __aexit__(self, *_): await self.put('out')\n",
        wrong=("self.put('out')", "self.put('in')"),
        tests="import asyncio\nfrom calc import Box\ndef test_it():\n    async def main():\n        async with Box() as box:\n            assert await box.get() == 'in'\n        return await box.get()\n    assert asyncio.run(main()) == 'out'\n",
    ),
}
STYLES = {
    "an object of the tests' module": Way(
        code=NODE,
        wrong=("self.value + sum", "sum"),
        tests="from calc import Node\nTREE = Node(1, Node(2))\ndef test_it(): assert TREE.total() == 3\n",
    ),
    "a dataclass of the tests' module": Way(
        code=ACCOUNT,
        wrong=("self.balance == 0", "self.balance == 1"),
        tests="from calc import Account\nEMPTY = Account('x')\nDEFAULTS = {'a': EMPTY}\ndef test_it(): assert DEFAULTS['a'].empty\n",
    ),
    "objects as parameters": Way(
        code=NODE,
        wrong=("self.value + sum", "sum"),
        tests="import pytest\nfrom calc import Leaf, Node\n@pytest.mark.parametrize(('node', 'total'), [(Node(1), 1), (Node(1, Leaf(2)), 3)], ids=['one', 'two'])\ndef test_it(node, total): assert node.total() == total\n",
        ids=("test_hidden.py::test_it[one]", "test_hidden.py::test_it[two]"),
    ),
    "functions and classes as parameters": Way(
        code=NODE + "def double(n): return 2 * n\ndef triple(n): return 3 * n\n",
        wrong=("3 * n", "2 * n"),
        tests="import pytest\nfrom calc import Leaf, Node, double, triple\n@pytest.mark.parametrize('cls', [Node, Leaf])\n@pytest.mark.parametrize(('f', 'wanted'), [(double, 4), (triple, 6)])\ndef test_it(f, wanted, cls): assert f(cls(2).value) == wanted\n",
        ids=tuple(
            f"test_hidden.py::test_it[{f}-{n}-{c}]"
            for f, n in (("double", 4), ("triple", 6))
            for c in ("Node", "Leaf")
        ),
    ),
    "import of all": Way(
        code="import math, os\nRATE = 2\ndef alpha(a): return a * RATE\nclass Box:\n    side = 3\n",
        wrong=("a * RATE", "a"),
        tests="import math\nfrom calc import *\ndef test_it(): assert alpha(3) == 6 == math.floor(6.5) and RATE == 2 and Box().side == 3\n",
    ),
    "import of all that is listed": Way(
        code="__all__ = ['alpha', '_inner']\ndef alpha(a): return a * 2\ndef _inner(): return 1\ndef other(): return 2\n",
        wrong=("a * 2", "a"),
        tests="from calc import *\nimport calc\ndef test_it():\n    assert alpha(3) == 6 and _inner() == 1 and 'other' not in globals()\n    assert calc.__all__ == ['alpha', '_inner']\n",
    ),
    "the version": Way(
        code="'''Sums.'''\n__version__ = '1.2.3'\n__author__ = 'ada'\n",
        wrong=("1.2.3", "1.2.4"),
        tests="import calc\nfrom calc import __version__\ndef test_it(): assert calc.__version__ == __version__ == '1.2.3' and calc.__doc__ == 'Sums.' and calc.__name__ == 'calc'\n",
    ),
    "the name of a class": Way(
        code=NODE + ACCOUNT + WORDS + "def made(n): return Leaf(n) if n else Node(n)\n",
        wrong=("Leaf(n) if n", "Node(n) if n"),
        tests="from calc import Account, Leaf, Words, made\ndef test_it():\n    assert type(made(1)).__name__ == 'Leaf' and made(1).__class__.__name__ == 'Leaf'\n    assert type(made(1)) is Leaf and type(made(0)) is not Leaf and Leaf.__name__ == 'Leaf'\n    assert type(Account('x')).__name__ == 'Account' and type(Words()).__name__ == 'Words'\n",
    ),
    "warnings": Way(
        code="import warnings\nclass Old(DeprecationWarning): pass\ndef old():\n    warnings.warn('use new', Old, stacklevel=2)\n    return 1\ndef new(): return 2\n",
        wrong=("'use new', Old", "'use new'"),
        tests="import warnings\nimport pytest\nfrom calc import Old, new, old\ndef test_it():\n    with pytest.warns(DeprecationWarning, match='use new'):\n        assert old() == 1\n    with pytest.warns(Old) as seen: old(); old()\n    assert len(seen) == 2 and str(seen[0].message) == 'use new' and issubclass(seen[0].category, Old)\n    with warnings.catch_warnings():\n        warnings.simplefilter('error')\n        assert new() == 2\n        with pytest.raises(Old): old()\n",
    ),
    "a call that is deprecated": Way(
        code="import warnings\ndef old(): warnings.warn('gone', DeprecationWarning)\n",
        wrong=("'gone', D", "'x', D"),
        tests="import unittest\nimport pytest\nfrom calc import old\nclass T(unittest.TestCase):\n    def test_it(self):\n        with self.assertWarns(DeprecationWarning) as seen: old()\n        assert str(seen.warning) == 'gone'\n        with pytest.deprecated_call(): old()\n",
        ids=("test_hidden.py::T::test_it",),
    ),
    "a function that is patched": Way(
        code="def fetch(url): raise OSError(url)\ndef size(url): return len(fetch(url))\n",
        wrong=("len(fetch(url))", "7"),
        tests="from unittest import mock\nimport pytest\nimport calc\ndef test_it():\n    with mock.patch('calc.fetch', return_value='abc') as fetch:\n        assert calc.size('u') == 3\n    fetch.assert_called_once_with('u')\n    with mock.patch.object(calc, 'fetch', side_effect=lambda url: url * 2):\n        assert calc.size('ab') == 4\n    with pytest.raises(OSError): calc.size('u')\n",
    ),
    "a decorator that patches": Way(
        code="import time\ndef slow(n):\n    time.sleep(n)\n    return n + 1\n",
        wrong=("time.sleep(n)", "pass"),
        tests="from unittest import mock\nfrom calc import slow\n@mock.patch('calc.time.sleep')\ndef test_it(sleep):\n    assert slow(99) == 100\n    sleep.assert_called_once_with(99)\n",
    ),
    "a value that is patched": Way(
        code="RATE = 2\nCONFIG = {'a': 1}\ndef alpha(n): return n * RATE + CONFIG['a']\n",
        wrong=("n * RATE", "n * 2"),
        tests="from unittest import mock\nimport calc\ndef test_it():\n    with mock.patch('calc.RATE', 5), mock.patch.dict(calc.CONFIG, a=3):\n        assert calc.alpha(2) == 13\n    assert calc.alpha(2) == 5 and calc.RATE == 2 and calc.CONFIG == {'a': 1}\n",
    ),
    "a method that is patched": Way(
        code="class Client:\n    def get(self, n): raise OSError\n    def twice(self, n): return self.get(n) * 2\n",
        wrong=("self.get(n) * 2", "n * 8"),
        tests="from unittest import mock\nfrom calc import Client\ndef test_it(monkeypatch):\n    with mock.patch.object(Client, 'get', return_value=4): assert Client().twice(1) == 8\n    monkeypatch.setattr(Client, 'get', lambda self, n: n + 1)\n    assert Client().twice(2) == 6\n    client = Client()\n    client.get = lambda n: 1\n    assert client.twice(5) == 2\n",
    ),
    "functions as arguments": Way(
        code="def apply(f, xs): return [f(x) for x in xs]\ndef retry(f, times):\n    for n in range(times):\n        try: return f()\n        except ValueError: pass\n    raise RuntimeError('gave up')\n",
        wrong=("[f(x) for x in xs]", "xs"),
        tests="import pytest\nfrom calc import apply, retry\ndef test_it():\n    assert apply(lambda x: x + 1, [1, 2]) == [2, 3] and apply(str, [1]) == ['1']\n    seen = []\n    def flaky():\n        seen.append(1)\n        if len(seen) < 3: raise ValueError\n        return 'done'\n    assert retry(flaky, 5) == 'done' and len(seen) == 3\n    with pytest.raises(RuntimeError, match='gave up'): retry(lambda: int('x'), 2)\n    with pytest.raises(KeyError): retry(lambda: {}['k'], 2)\n",
    ),
    "a mock as an argument": Way(
        code="def publish(bus, items):\n    for item in items: bus.send(item, retry=True)\n    return bus.flush()\n",
        wrong=("retry=True", "retry=False"),
        tests="from unittest.mock import Mock, call\nfrom calc import publish\ndef test_it():\n    bus = Mock()\n    bus.flush.return_value = 7\n    assert publish(bus, [1, 2]) == 7\n    assert bus.send.call_args_list == [call(1, retry=True), call(2, retry=True)]\n    bus.flush.assert_called_once()\n",
    ),
    "a fake as an argument": Way(
        code="def total(store):\n    store.put('x', 3)\n    return sum(store.get(k) for k in store.keys)\n",
        wrong=("'x', 3", "'x', 4"),
        tests="from calc import total\nclass Store:\n    def __init__(self): self.all, self.keys = {'a': 1}, ['a', 'x']\n    def get(self, key): return self.all[key]\n    def put(self, key, value): self.all[key] = value\ndef test_it():\n    store = Store()\n    assert total(store) == 4 and store.all == {'a': 1, 'x': 3}\n",
    ),
    "asynchronous generators": Way(
        code="import asyncio\nasync def count(n):\n    for i in range(n):\n        await asyncio.sleep(0)\n        yield i\nasync def double(n): return 2 * n\n",
        wrong=("yield i", "yield i + 1"),
        tests="import asyncio\nfrom calc import count, double\ndef test_it():\n    async def main():\n        seen = []\n        async for i in count(3): seen.append(i)\n        return seen, [i async for i in count(2)], await asyncio.gather(double(1), double(2))\n    assert asyncio.run(main()) == ([0, 1, 2], [0, 1], [2, 4])\n",
    ),
    "the signature": Way(
        code="from typing import Optional\ndef alpha(a, b: int = 3, *, flag: bool = False) -> str:\n    '''The text.'''\nclass Box:\n    def __init__(self, side=1): self.side = side\n    def grow(self, by): pass\n",
        wrong=("b: int = 3", "b: int = 4"),
        tests="import inspect\nfrom calc import Box, alpha\ndef test_it():\n    found = inspect.signature(alpha)\n    assert list(found.parameters) == ['a', 'b', 'flag'] and found.parameters['b'].default == 3\n    assert found.parameters['flag'].kind is inspect.Parameter.KEYWORD_ONLY and found.return_annotation is str\n    assert str(found) == '(a, b: int = 3, *, flag: bool = False) -> str'\n    assert list(inspect.signature(Box).parameters) == ['side'] and list(inspect.signature(Box().grow).parameters) == ['by']\n    assert alpha.__doc__ == 'The text.' and alpha.__name__ == 'alpha' and callable(alpha)\n",
    ),
    "annotations and attributes": Way(
        code="class Box:\n    '''A box.'''\n    side: int = 1\n    def __init__(self): self.items = [1]\ndef alpha(a: int) -> str: return str(a)\n",
        wrong=("a: int", "a: str"),
        tests="from calc import Box, alpha\ndef test_it():\n    assert alpha.__annotations__ == {'a': int, 'return': str} and alpha.__module__ == 'calc'\n    assert hasattr(Box(), 'items') and not hasattr(Box(), 'other') and getattr(Box, 'other', 5) == 5\n    assert Box.__doc__ == 'A box.' and vars(Box()) == {'items': [1]} and Box().__dict__ == {'items': [1]}\n",
    ),
    "a state that is reset": Way(
        code="_cache = {}\nhits = []\ndef get(k):\n    if k not in _cache:\n        hits.append(k)\n        _cache[k] = k * 2\n    return _cache[k]\n",
        wrong=("hits.append(k)", "hits.extend([k, k])"),
        tests="import pytest\nimport calc\n@pytest.fixture(autouse=True)\ndef fresh():\n    calc._cache.clear()\n    calc.hits.clear()\n@pytest.mark.parametrize('n', [1, 2])\ndef test_it(n):\n    assert calc.get('a') == calc.get('a') == 'aa'\n    assert calc.hits == ['a']\n",
        ids=("test_hidden.py::test_it[1]", "test_hidden.py::test_it[2]"),
    ),
    "a module in a package": Way(
        code="def alpha(a): return a + 1\n",
        wrong=("a + 1", "a"),
        tests="import importlib\nimport calc as c\ndef test_it():\n    assert c.alpha(1) == 2 and importlib.import_module('calc').alpha(2) == 3\n    assert importlib.reload(c) is c and c.alpha(1) == 2\n",
    ),
    "a context that sees an error": Way(
        code="class Transaction:\n    def __init__(self): self.state = 'new'\n    def __enter__(self):\n        self.state = 'open'\n        return self\n    def __exit__(self, kind, error, trace): self.state = 'rolled back' if kind is ValueError else 'done'\n",
        wrong=("is ValueError", "is KeyError"),
        tests="import pytest\nfrom calc import Transaction\ndef test_it():\n    t = Transaction()\n    with pytest.raises(ValueError), t: raise ValueError('x')\n    assert t.state == 'rolled back'\n    with t: assert t.state == 'open'\n    assert t.state == 'done'\n",
    ),
}


UNDECIDED = {
    *("a dataclass made by its class", "dataclasses in one another", "a dataclass with private fields"),
    *("an enumeration with methods", "objects in order and added", "objects that say when they are equal"),
    "a dataclass of the tests' module",
}
"""The styles that pass and pay nothing: they compare two objects of the code under test, which has seen what the
expected one was made of, or ask it for one truth."""


@pytest.mark.parametrize("name", {**SOLUTIONS, **STYLES})
async def test_a_judge_holds_it(ns_backend: Backend, tmp_path: Path, name: str) -> None:
    right, wrong = await verified(ns_backend, tmp_path, {**SOLUTIONS, **STYLES}[name])
    grade = Grade.GUARDED if name in UNDECIDED else Grade.JUDGED
    assert (right.passed, right.grade, right.void) == (True, grade, None), right
    assert (wrong.passed, wrong.void) == (False, None), wrong
