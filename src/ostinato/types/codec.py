"""The one JSON form of every noun: an object of its fields, checked when it is read.

Enumerations are their values, sequences are lists, sets are sorted lists, bytes are base64, and paths are
text. The form follows from the annotations, and is worked out once for each class.
"""

import base64
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
INT32 = range(-(2**31), 2**31)
"""The range of ids, versions and turns: the store packs rows of them as 32-bit numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """The two directions of one type; `read` raises ValueError or TypeError for another value."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = lambda value: value


def to_json(noun: Any) -> dict[str, Any]:
    """Return an instance of a dataclass as an object for any JSON encoder, with all of its fields.

    >>> from ostinato.types import Arm
    >>> to_json(Arm(name="champion", version=40, share=0.5, engines=("http://127.0.0.1:9001",)))["engines"]
    ['http://127.0.0.1:9001']
    """
    forms = _forms_of(type(noun))  # type: ignore[arg-type]
    return {name: form.write(getattr(noun, name)) for name, (form, _) in forms.items()}


def from_json(noun: type[T], data: object) -> T:
    """Return the instance of `noun` that an object from a JSON decoder describes.

    Fields with a default may be left out. Raises ValueError that begins with the path of a field that is
    missing, unknown or of another type.

    >>> from ostinato.types import Sampling
    >>> from_json(Sampling, {"seed": 7}).seed
    7
    >>> from_json(Sampling, {"top_a": 0.5})
    Traceback (most recent call last):
    ValueError: top_a: unknown, a Sampling has no such field
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"expected a JSON object of a {noun.__name__}, got {data!r:.80}")
    forms = _forms_of(noun)  # type: ignore[arg-type]  # mypy holds that a class has no hash
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name not in forms:
            raise ValueError(f"{name}: unknown, a {noun.__name__} has no such field")
        try:
            values[name] = forms[name][0].read(value)
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"{name}: {error}") from error
    for name, (_, required) in forms.items():
        if required and name not in values:
            raise ValueError(f"{name}: missing, a {noun.__name__} needs it")
    return noun(**values)


@cache
def _forms_of(noun: Any) -> dict[str, tuple[_Form, bool]]:
    """Return the form of each field of a dataclass, and whether the field is required."""
    assert is_dataclass(noun), f"{noun!r} is no dataclass"
    hints = get_type_hints(noun)
    return {
        each.name: (_form(hints[each.name]), each.default is MISSING and each.default_factory is MISSING)
        for each in fields(noun)
        if each.init
    }


def _form(hint: Any) -> _Form:
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, parts = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return _union([_form(part) for part in parts if part is not type(None)], optional=type(None) in parts)
    if origin is tuple and parts[1:] == (...,):
        return _sequence(parts[0])
    if origin is frozenset:
        many = _sequence(parts[0])
        return _Form(read=lambda value: frozenset(many.read(value)), write=sorted)
    if isinstance(origin, type) and issubclass(origin, Mapping) and parts[0] is str:
        return _mapping(_form(parts[1]))
    if is_dataclass(hint) and isinstance(hint, type):
        return _Form(read=lambda value: from_json(hint, value), write=to_json)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _Form(read=lambda value: _member(hint, value), write=lambda value: value.value)
    raise TypeError(f"{hint} has no form in JSON")


def _union(forms: list[_Form], *, optional: bool) -> _Form:
    """Return the form of alternatives, of which the first that fits reads a value.

    Those that a noun combines are written as they are, unless there is one alone.
    """
    write = forms[0].write if len(forms) == 1 else lambda value: value

    def read(value: Any) -> Any:
        if value is None and optional:
            return None
        for form in forms[:-1]:
            try:
                return form.read(value)
            except (ValueError, TypeError):
                continue
        return forms[-1].read(value)

    return _Form(read=read, write=lambda value: None if value is None else write(value))


def _sequence(part: Any) -> _Form:
    form = _form(part)

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise TypeError(f"expected a list, got {value!r:.80}")
        if part in {int, float} and {part}.issuperset(map(type, value)):
            many = tuple(value)  # a prompt has thousands of ids
        else:
            many = tuple(map(form.read, value))
        if part is int and many and not (min(many) in INT32 and max(many) in INT32):
            raise ValueError(f"expected 32-bit numbers, got {max(many, key=abs)}")
        return many

    return _Form(
        read=read, write=list if part in _SCALARS else lambda value: [form.write(each) for each in value]
    )


def _mapping(form: _Form) -> _Form:
    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise TypeError(f"expected an object, got {value!r:.80}")
        return {_text(name): form.read(each) for name, each in value.items()}

    return _Form(read=read, write=lambda value: {name: form.write(each) for name, each in value.items()})


def _member(kinds: type[Enum], value: Any) -> Enum:
    try:
        return kinds(value)
    except ValueError:
        known = ", ".join(str(each.value) for each in kinds)
        raise ValueError(f"expected one of {known}, got {value!r:.80}") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {value!r:.80}")
    return value


def _int(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"expected a whole number, got {value!r:.80}")
    return value


def _float(value: Any) -> float:
    if type(value) not in {int, float}:
        raise TypeError(f"expected a number, got {value!r:.80}")
    return float(value)


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(f"expected true or false, got {value!r:.80}")
    return value


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except ValueError as error:
        raise ValueError(f"not base64: {error}") from error


_SCALARS = {str, int, float, bool}
_PLAIN: dict[Any, _Form] = {
    str: _Form(read=_text),
    int: _Form(read=_int),
    float: _Form(read=_float),
    bool: _Form(read=_bool),
    bytes: _Form(read=_bytes, write=lambda value: base64.b64encode(value).decode()),
    Path: _Form(read=lambda value: Path(_text(value)), write=str),
    Any: _Form(read=lambda value: value),
}
