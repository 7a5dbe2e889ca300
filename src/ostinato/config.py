"""Settings: TOML files and `a.b=3` overrides into nested frozen dataclasses, and back into TOML.

Every key must exist and have the right type. TOML has no null: in a field that may be None, the text `none`
means None.
"""

import dataclasses
import difflib
import json
import os
import tomllib
import types
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
NONE = "none"


class ConfigError(Exception):
    """A setting cannot be used; the message names the file or override, the key and what would be right."""


def secret(file: Path | None, variable: str) -> str:
    """Return a key from the first line of a file, else from an environment variable; empty without either.

    A command never takes a key as an argument, since arguments are seen by everybody on the machine. Raises
    ConfigError, which does not repeat what was given: it may be the key itself.
    """
    if file is None:
        return os.environ.get(variable, "")
    try:
        key = file.read_text().partition("\n")[0].strip()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the key file cannot be read: name a file, or put the key in {variable}"
        ) from error
    if not key:
        raise ConfigError(f"the key file is empty: write the key in its first line, or set {variable}")
    return key


@dataclasses.dataclass(frozen=True, slots=True)
class Raw:
    """The right-hand side of an override: text until the type of its field is known."""

    text: str

    def parsed(self) -> Any:
        try:
            return tomllib.loads(f"value = {self.text}")["value"]
        except tomllib.TOMLDecodeError:
            return self.text


def load(schema: type[T], path: Path | None = None, overrides: Sequence[str] = ()) -> T:
    """The defaults of `schema`, changed by the file, changed by the overrides.

    Raises ConfigError for a file that is missing or not TOML, an unknown key, a value of the wrong type and a
    value that the dataclass itself refuses with ValueError.
    """
    tree = {} if path is None else _read(path)
    config: T = _build(schema, None, tree, str(path), "")
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"override {override!r}: write it as key=value, for example train.steps=100")
        change: Any = Raw(text.strip())
        for name in reversed(key.strip().split(".")):
            change = {name: change}
        config = _build(schema, config, change, f"override {override!r}", "")
    return config


def read(schema: type[T], values: Any, origin: Path) -> T:
    """Return the dataclass that `values`, parsed JSON from the file `origin`, describes.

    Raises ConfigError, as `load` does.
    """
    config: T = _build(schema, None, values, str(origin), "")
    return config


def dump(config: Any) -> str:
    """TOML that `load` turns back into an equal config."""
    return "\n".join(_tables(config, "")).strip() + "\n"


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error


def _build(schema: type[Any], base: Any, tree: Any, origin: str, where: str) -> Any:
    """`base`, or a default `schema` if None, with the values of `tree`; `where` is the dotted path so far."""
    if not isinstance(tree, Mapping):
        raise ConfigError(
            f"{origin}: {where[:-1]} is a table of {', '.join(_names(schema))}, got a single value"
        )
    hints = get_type_hints(schema)
    values = {}
    for name, value in tree.items():
        if name not in _names(schema):
            raise ConfigError(f"{origin}: unknown key {where + name!r}{_nearest(name, schema, where)}")
        current = None if base is None else getattr(base, name)
        values[name] = _convert(hints[name], current, value, origin, where + name)
    try:
        return schema(**values) if base is None else dataclasses.replace(base, **values)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{origin}: {where[:-1] or schema.__name__}: {error}") from error


def _names(schema: type[Any]) -> list[str]:
    return [field.name for field in dataclasses.fields(schema) if field.init]


def _nearest(name: str, schema: type[Any], where: str) -> str:
    known = _names(schema)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f", did you mean {where + close[0]!r}?" if close else f", known are {', '.join(known)}"


def _convert(kind: Any, current: Any, value: Any, origin: str, key: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _build(kind, current, value, origin, f"{key}.")  # type: ignore[arg-type]
    try:
        return _value(kind, value)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{origin}: {key}: {error}") from error


def _value(kind: Any, value: Any) -> Any:
    """`value` as a `kind`; raises ValueError or TypeError saying what was expected."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        return _optional(inner, value)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _build(kind, None, value, "in this", "")  # type: ignore[arg-type]
    if isinstance(value, Raw):
        return _value(kind, _unquoted(value) if _is_text(kind) else value.parsed())
    if origin is tuple:
        return _tuple(inner, value)
    if origin in {dict, Mapping}:
        return {name: _value(inner[1], item) for name, item in _expect(dict, value).items()}
    if origin is Literal:
        return _one_of(inner, value)
    return _scalar(kind, value)


def _scalar(kind: Any, value: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(_one_of([member.value for member in kind], value))
    if kind is Path:
        return Path(_expect(str, value))
    if kind is float and type(value) is int:
        return float(value)
    return _expect(kind, value)


def _is_text(kind: Any) -> bool:
    return kind in {str, Path} or (isinstance(kind, type) and issubclass(kind, str))


def _unquoted(raw: Raw) -> str:
    parsed = raw.parsed()
    return parsed if isinstance(parsed, str) else raw.text


def _optional(kinds: tuple[Any, ...], value: Any) -> Any:
    if type(None) in kinds and (value.text if isinstance(value, Raw) else value) in (NONE, None):
        return None
    errors = []
    for kind in kinds:
        if kind is not type(None):
            try:
                return _value(kind, value)
            except (ValueError, TypeError) as error:
                errors.append(str(error))
    raise ValueError(" or ".join(errors))


def _tuple(inner: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    items = _expect(list, value)
    if inner[1:] == (...,):
        return tuple(_value(inner[0], item) for item in items)
    if len(items) != len(inner):
        raise ValueError(f"expected {len(inner)} values, got {len(items)}")
    return tuple(_value(kind, item) for kind, item in zip(inner, items, strict=True))


def _one_of(allowed: Sequence[Any], value: Any) -> Any:
    if value not in allowed:
        raise ValueError(f"expected one of {', '.join(map(repr, allowed))}, got {value!r}")
    return value


def _expect(kind: Any, value: Any) -> Any:
    if type(value) is not kind:
        got = "a table" if isinstance(value, Mapping) else repr(value)
        raise TypeError(f"expected {kind.__name__}, got {got}")
    return value


def _tables(config: Any, where: str) -> Iterator[str]:
    """Lines of TOML: the plain keys of this table first, then one table for each nested dataclass."""
    values = [(field, getattr(config, field.name)) for field in dataclasses.fields(config) if field.init]
    hints = get_type_hints(type(config))
    for field, value in values:
        if value is not None and str(value) == NONE and type(None) in get_args(hints[field.name]):
            raise ConfigError(f"{where}{field.name}: the text 'none' would be read back as None")
        if not dataclasses.is_dataclass(value):
            yield f"{field.name} = {_toml(value, where + field.name)}"
    for field, value in values:
        if dataclasses.is_dataclass(value):
            yield f"\n[{where}{field.name}]"
            yield from _tables(value, f"{where}{field.name}.")


def _toml(value: Any, key: str) -> str:
    if isinstance(value, Enum):
        return _toml(value.value, key)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(_toml(item, key) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_text(name)} = {_toml(item, key)}' for name, item in value.items())}}}"
    if value is None:
        return _text(NONE)
    if isinstance(value, str | Path):
        return _text(str(value))
    raise ConfigError(f"{key}: a {type(value).__name__} has no form in TOML")


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
