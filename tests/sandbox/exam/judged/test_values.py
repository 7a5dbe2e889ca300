"""Plain data arrives exactly as it was sent, and nothing else arrives.

Covers sandbox/exam/judged/records.py and sandbox/exam/judged/values.py.
"""

import math
import re
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

from ostinato.sandbox.exam.judged.records import TAGS, RecordBuilder, pack
from ostinato.sandbox.exam.judged.values import NotPlainError, decode, encode

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


def through(value: object) -> Any:
    made = RecordBuilder(own=False)
    return decode(encode(value, pack), {tag: getattr(made, tag) for tag in TAGS})


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
    for text in (
        f'{{"dataclass":["m","N",["{name}"],[1],true,false,false]}}',
        f'{{"namedtuple":["m","N",["{name}"],[1]]}}',
        f'{{"enum":["m","N","IntEnum",[["{name}",1]],1]}}',
    ):
        made = RecordBuilder(own=False)
        with pytest.raises((ValueError, TypeError)):
            decode(text, {tag: getattr(made, tag) for tag in TAGS})


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
