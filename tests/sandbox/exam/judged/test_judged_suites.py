# ruff: noqa: E501
"""The ways of real suites that a judge holds: each is a task of its own, with a right and a wrong solution.

Covers sandbox/exam/judged/in_place.py, sandbox/exam/judged/questions.py and sandbox/exam/judged/worker.py.
"""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fuzz.tasks_on_disk import write_task

from ostinato.sandbox import Backend, Limits
from ostinato.sandbox.exam.verifier import Verification, Verifier
from ostinato.types import Grade


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A module, its hidden tests, and what a wrong module has in place of a part of the right one.

    >>> Way(code="def f(): return 1", wrong=("1", "2"), tests="def test_it(): ...").ids
    ('test_hidden.py::test_it',)
    """

    code: str
    wrong: tuple[str, str]
    tests: str
    ids: tuple[str, ...] = ("test_hidden.py::test_it",)
    helpers: dict[str, str] = field(default_factory=dict)


STACK = """
class StackError(Exception):
    def __init__(self, size):
        super().__init__(f"no item in {size}")
        self.size = size

class Stack:
    limit = 3
    def __init__(self, items=()):
        self.items = list(items)
    def push(self, item):
        self.items.append(item)
        return self
    def pop(self):
        if not self.items:
            raise StackError(0)
        return self.items.pop()
    @classmethod
    def of(cls, *items):
        return cls(items)
    @property
    def size(self):
        return len(self.items)
    def __len__(self): return len(self.items)
    def __add__(self, other): return Stack(self.items + other.items)
    def __repr__(self): return f"Stack({self.items})"
    def __delitem__(self, at): del self.items[at]
    def __reversed__(self): return reversed(self.items)

class Other: pass
"""
WAYS = {
    "fixtures of a conftest": Way(
        code="def alpha(a, b): return a + b\n",
        wrong=("a + b", "a - b"),
        tests="from calc import alpha\ndef test_it(three, made): assert alpha(three, 1) == made\n",
        helpers={
            "conftest.py": "import pytest\n@pytest.fixture\ndef three(): return 3\n@pytest.fixture(scope='session')\ndef made():\n    yield 4\n"
        },
    ),
    "a fixture of an object": Way(
        code=STACK,
        wrong=("self.items.append(item)", "pass"),
        tests="import pytest\nfrom calc import Stack\n@pytest.fixture\ndef stack(): return Stack([1])\ndef test_it(stack):\n    assert stack.push(2).pop() == 2\n    assert len(stack) == 1\n",
    ),
    "parametrised fixtures and tests": Way(
        code="def alpha(a, b): return a + b\n",
        wrong=("a + b", "a - b"),
        tests="import pytest\nfrom calc import alpha\n@pytest.fixture(params=[1, 2])\ndef one(request): return request.param\n@pytest.mark.parametrize('b', [3, 4])\ndef test_it(one, b): assert alpha(one, b) == one + b\n",
        ids=tuple(f"test_hidden.py::test_it[{a}-{b}]" for a in (1, 2) for b in (3, 4)),
    ),
    "monkeypatch of the environment": Way(
        code="import os\ndef home(): return os.environ['CALC_HOME'] + '!'\n",
        wrong=("'!'", "'?'"),
        tests="from calc import home\ndef test_it(monkeypatch):\n    monkeypatch.setenv('CALC_HOME', 'here')\n    assert home() == 'here!'\n",
    ),
    "monkeypatch of the code": Way(
        code="RATE = 2\ndef alpha(a): return a * RATE\n",
        wrong=("a * RATE", "a * 2"),
        tests="import calc\ndef test_it(monkeypatch):\n    monkeypatch.setattr(calc, 'RATE', 5)\n    assert calc.alpha(2) == 10\n    monkeypatch.undo()\n    assert calc.alpha(2) == 4\n",
    ),
    "classes and methods": Way(
        code=STACK,
        wrong=("len(self.items)", "0"),
        tests="from calc import Stack\nclass TestStack:\n    def test_it(self):\n        s = Stack.of(1, 2)\n        assert (s.size, Stack.limit) == (2, 3)\n",
        ids=("test_hidden.py::TestStack::test_it",),
    ),
    "attributes that are set": Way(
        code="class P:\n    x = 1\n    def twice(self): return self.x * 2\n",
        wrong=("self.x * 2", "2"),
        tests="from calc import P\ndef test_it():\n    p = P()\n    p.x = 4\n    assert p.twice() == 8\n    del p.x\n    assert p.twice() == 2\n",
    ),
    "texts, ends and items that are deleted": Way(
        code=STACK,
        wrong=("del self.items[at]", "pass"),
        tests="from calc import Stack\ndef test_it():\n    s = Stack([1, 2, 3])\n    assert str(s) == repr(s) == 'Stack([1, 2, 3])'\n    del s[0]\n    assert list(reversed(s)) == [3, 2]\n    assert s.size == 2\n",
    ),
    "instances": Way(
        code=STACK,
        wrong=("return self\n", "return Other()\n"),
        tests="from calc import Stack, Other\ndef test_it():\n    s = Stack().push(1)\n    assert isinstance(s, Stack)\n    assert not isinstance(s, Other)\n    assert not isinstance(1, Stack)\n    assert isinstance(s, (int, Stack))\n",
    ),
    "arguments changed in place": Way(
        code="def fill(xs, seen, kinds):\n    xs.append(4)\n    seen['n'] = len(xs)\n    kinds.add(3)\n    xs[0].append(9)\n",
        wrong=("xs.append(4)", "pass"),
        tests="from calc import fill\ndef test_it():\n    inner = [1]\n    xs, seen, kinds = [inner, 2], {}, {1}\n    assert fill(xs, seen, kinds=kinds) is None\n    assert (xs, inner, seen, kinds) == ([[1, 9], 2, 4], [1, 9], {'n': 3}, {1, 3})\n",
    ),
    "an argument changed in place by a method that raises": Way(
        code="class P:\n    def add(self, xs):\n        xs.append(1)\n        raise ValueError('full')\n",
        wrong=("append(1)", "append(2)"),
        tests="import pytest\nfrom calc import P\ndef test_it():\n    xs = []\n    with pytest.raises(ValueError, match='full'):\n        P().add(xs)\n    assert xs == [1]\n",
    ),
    "generators": Way(
        code="def count(n):\n    got = yield n\n    while True:\n        got = yield got\ndef upto(n): yield from range(n)\n",
        wrong=("range(n)", "range(n + 1)"),
        tests="from calc import count, upto\ndef test_it():\n    g = count(1)\n    assert next(g) == 1\n    assert g.send(5) == 5\n    g.close()\n    assert list(upto(3)) == [0, 1, 2]\n    assert sum(x for x in upto(3)) == 3\n    assert next(upto(0), 'end') == 'end'\n",
    ),
    "exceptions of its own": Way(
        code=STACK,
        wrong=("raise StackError(0)", "raise IndexError('no item in 0')"),
        tests="import pytest\nfrom calc import Stack, StackError\ndef test_it():\n    with pytest.raises(StackError, match='no item') as caught:\n        Stack().pop()\n    assert caught.value.size == 0\n    assert str(caught.value) == 'no item in 0'\n    assert issubclass(StackError, Exception)\n",
    ),
}
NOT_HELD = {
    "tmp_path": Way(
        code="def load(path): return open(path).read().upper()\n",
        wrong=(".upper()", ".lower()"),
        tests="from calc import load\ndef test_it(tmp_path):\n    (tmp_path / 'x').write_text('Ab')\n    assert load(tmp_path / 'x') == 'AB'\n    assert load(str(tmp_path / 'x')) == 'AB'\n",
    ),
    "what is printed": Way(
        code="def hello(): print('hello')\n",
        wrong=("'hello')", "'bye')"),
        tests="from calc import hello\ndef test_it(capsys):\n    hello()\n    assert capsys.readouterr().out == 'hello\\n'\n",
    ),
    "an operator with a plain operand": Way(
        code=STACK.replace("self.items + other.items", "self.items + other"),
        wrong=("self.items + other", "self.items"),
        tests="from calc import Stack\ndef test_it():\n    assert (Stack([1]) + [2]).items == [1, 2]\n",
    ),
    "an argument changed by a call with a result": Way(
        code="def take(xs): return xs.pop()\n",
        wrong=("xs.pop()", "xs[0]"),
        tests="from calc import take\ndef test_it():\n    xs = [1, 2]\n    assert take(xs) == 2\n    assert xs == [1]\n",
    ),
}
"""The ways that need a guarded suite. Plain operands and results beside a change are left out on purpose: with
them a candidate could learn what a test expects, or change it."""


async def verified(backend: Backend, directory: Path, way: Way) -> tuple[Verification, Verification]:
    """Return the verdicts on the right module and on the wrong one."""
    bad = way.code.replace(*way.wrong)
    assert bad != way.code
    hidden = {"test_hidden.py": way.tests, **way.helpers}
    task = write_task(directory, {"calc.py": bad, ".git/HEAD": "ref: refs/heads/main\n"}, hidden, way.ids)
    verifier = Verifier(backend, Limits(wall_s=10, cpu_s=5))
    return await verifier.verify(task, {"calc.py": way.code.encode()}), await verifier.verify(task, {})


@pytest.mark.parametrize("name", WAYS)
async def test_a_judge_holds_it(ns_backend: Backend, tmp_path: Path, name: str) -> None:
    right, wrong = await verified(ns_backend, tmp_path, WAYS[name])
    assert (right.passed, right.grade, right.void) == (True, Grade.JUDGED, None), right
    assert (wrong.passed, wrong.void) == (False, None), wrong


@pytest.mark.parametrize("name", NOT_HELD)
async def test_a_judge_refuses_what_it_cannot_hold(ns_backend: Backend, tmp_path: Path, name: str) -> None:
    right, wrong = await verified(ns_backend, tmp_path, NOT_HELD[name])
    assert (right.passed, right.void, wrong.passed, wrong.void) == (False, None, False, None), (right, wrong)
