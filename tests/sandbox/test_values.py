"""Plain data survives the trip exactly; nothing else makes it."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.sandbox.values import NotPlainError, decode, encode

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


@pytest.mark.parametrize("value", [Sly(1), SlyText("a"), [Sly(1)], {"k": (Sly(2),)}, object(), 1j, range(3)])
def test_what_is_not_plain_is_refused(value: object) -> None:
    with pytest.raises(NotPlainError):
        encode(value)


@pytest.mark.parametrize(
    "text", ["", "{", '{"int": 5}', '{"evil": 1}', '{"set": [[1]]}', '{"dict": [1]}', '{"a":1,"b":2}']
)
def test_nonsense_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode(text)
