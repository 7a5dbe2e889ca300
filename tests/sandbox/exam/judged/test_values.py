"""Plain data arrives exactly as it was sent, and nothing else arrives.

Covers sandbox/exam/judged/records.py, sandbox/exam/judged/reference_builder.py and
sandbox/exam/judged/values.py.
"""

import math
import re
import socket
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Flag, IntEnum
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.sandbox.exam.judged.reference_builder import References
from ostinato.sandbox.exam.judged.references import reference_of
from ostinato.sandbox.exam.judged.values import NotPlainError, decode, encode
from ostinato.sandbox.exam.judged.worker import QuestionHandler

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=20)
)
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(scalars, inner)
        | st.sets(scalars)
        | st.frozensets(scalars)
    ),
    max_leaves=20,
)


def same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a == b and repr(a) == repr(b)


@given(plain)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert same(decode(encode(value)), value) or isinstance(value, (set, frozenset, list, tuple, dict))
    assert decode(encode(value)) == value


def test_special_numbers_survive() -> None:
    assert same(decode(encode(-0.0)), -0.0)
    assert math.isnan(decode(encode(math.nan)))
    assert decode(encode(10**5000)) == 10**5000


class Sly(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class SlyText(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "another"


class SlyList(list[int]):
    def __iter__(self) -> Iterator[int]:
        return iter((9,))


@dataclass(frozen=True, order=True)
class Point:
    x: int
    y: object


@dataclass
class Sneaky:
    x: int

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class Pair(NamedTuple):
    left: int
    right: object


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mark(Flag):
    A = 1
    B = 2


NOON = datetime(2026, 2, 3, 12, 30, 1, 5)
LIBRARY = [
    *(Counter("aab"), OrderedDict(b=1, a=2), defaultdict(list, {1: [2]}), deque([1, 2], 3), bytearray(b"x")),
    *(Fraction(1, 3), Decimal("1.10"), 1j, range(1, 9, 2), slice(1, None), ..., int, ValueError),
    *(
        NOON,
        NOON.replace(tzinfo=UTC),
        NOON.date(),
        NOON.time(),
        timedelta(1, 2, 3),
        UTC,
        timezone(timedelta(hours=1)),
    ),
    *(Path("a/b"), PurePosixPath("/c"), PureWindowsPath("c:/d"), MappingProxyType({1: 2}), {1: 2}.keys()),
]


@pytest.mark.parametrize("value", LIBRARY, ids=repr)
def test_types_of_the_library_survive(value: object) -> None:
    assert same(decode(encode([value]))[0], value)


@pytest.mark.parametrize(
    ("value", "plain"),
    [(Sly(7), 7), (SlyText("a"), "a"), (SlyList([1]), [1]), ({"k": (Sly(2),)}, {"k": (2,)})],
)
def test_an_object_of_a_derived_class_arrives_as_the_plain_value_it_holds(
    value: object, plain: object
) -> None:
    assert same(decode(encode(value)), plain)


class Here:
    """A worker in this process, of which nothing is asked but the fields and texts of its objects."""

    asked = 0

    def __init__(self) -> None:
        with socket.socket() as unused:
            self.handler = QuestionHandler(unused)
        self.references = References(self)

    def ask(self, use: str, target: object, args: Any = (), kwargs: Any = {}) -> Any:  # noqa: B006
        found = reference_of(target)
        assert found is not None
        asked = {"use": use, "target": self.handler.builders[found.tag]([*found.parts]), "args": args}
        return self.handler.respond({**asked, "kwargs": kwargs})["value"]

    def look(self, use: str, target: object) -> Any:
        return self.ask(use, target)

    def hold(self, number: int, value: Any) -> None:
        pass

    def decoded(self, text: str) -> Any:
        return decode(text, {"class": self.references.kind, "instance": self.references.instance})


def through(value: object) -> Any:
    here = Here()
    return here.decoded(encode(value, here.handler.pack))


def test_records_are_like_the_candidates_and_equal_by_our_rules() -> None:
    pair, point, level = through([Pair(1, [2]), Point(1, (2,)), Level.HIGH])
    assert (pair, pair.left, pair[1], repr(pair)) == ((1, [2]), 1, [2], "Pair(left=1, right=[2])")
    assert (point.x, point.y, repr(point)) == (1, (2,), "Point(x=1, y=(2,))")
    assert (level, level.name, repr(level), level > 1) == (2, "HIGH", "<Level.HIGH: 2>", True)
    first, second, other = through([Point(1, 2), Point(1, 2), Point(1, 3)])
    assert first == second != other
    assert {first, second, other} == {second, other} and sorted([other, first]) == [second, other]
    sly, slyer = through([Sneaky(1), Sneaky(2)])
    assert sly != slyer
    assert through(Mark.A | Mark.B).value == 3


@pytest.mark.parametrize("name", ["__eq__", "_x", "a b", "__class__"])
def test_no_method_comes_from_a_field_that_the_candidate_named(name: str) -> None:
    shapes = [
        f'"namedtuple",[["{name}"],[]]],2,[1]',
        f'"enum",["IntEnum",[["{name}",1]],[]]],2,1',
    ]
    if name != "_x":
        shapes.append(f'"record",[[["{name}",true,true,true]],true,false,false,true,[]]],2,[1]')
    for shape in shapes:
        with pytest.raises((ValueError, TypeError)):
            Here().decoded(f'{{"instance":[[1,"m","N",{shape}]}}')


@pytest.mark.parametrize("shape", ["list", "dict", "str", "int", "tuple"])
def test_no_comparison_comes_from_a_name_that_the_candidate_replaced(shape: str) -> None:
    base: type = {"list": list, "dict": dict, "str": str, "int": int, "tuple": tuple}[shape]
    plain, sly = (
        Here().decoded(f'{{"class":[1,"m","N","{shape}",[{names}]]}}')
        for names in ("", '"__eq__","__lt__","__hash__","__contains__","__class__","__getattribute__"')
    )
    assert (vars(plain).keys(), sly.__mro__[-2]) == (vars(sly).keys(), base)


@pytest.mark.parametrize("value", [object(), iter(()), lambda: 0, re.compile("x"), NotPlainError])
def test_a_value_that_is_not_plain_is_refused(value: object) -> None:
    with pytest.raises(NotPlainError):
        encode(value)


@pytest.mark.parametrize(
    "text", ["", "{", '{"int": 5}', '{"evil": 1}', '{"set": [[1]]}', '{"dict": [1]}', '{"a":1,"b":2}']
)
def test_a_malformed_text_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode(text)
