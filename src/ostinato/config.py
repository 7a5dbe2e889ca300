"""Settings: TOML files and `a.b=3` overrides into nested frozen dataclasses, and back into TOML.

Every key must exist and have the right type. TOML has no null: in a field that may be None, the text `none`
means None. A field with the metadata `NO_SETTING` is filled in by the process itself, such as a secret from
its environment: no file and no flag may hold it.

A server or trainer reads its settings with `settings_of`: from flags that a person types, or from its own
table of the file that the loop wrote.

Each file may begin with `use = ["my_team.py"]`: plug-ins, which are loaded before the rest is read.
"""

import argparse
import ast
import dataclasses
import difflib
import functools
import inspect
import itertools
import json
import os
import re
import textwrap
import tomllib
import types
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ostinato import extend

T = TypeVar("T")
NONE = "none"
LIKE_A_KEY = re.compile(r"(sk-|ost_).*|[\w+=-]{20,}")
"""A name of a file that may be a key: it begins as keys do, or is one long word."""
NO_SETTING = {"setting": False}


class ConfigError(Exception):
    """A setting cannot be used; the message names the file or override, the key and a right value."""


def secret(file: Path | None, variable: str) -> str:
    """Return a key from the first line of a file, else from an environment variable; empty without either.

    A command never takes a key as an argument, since arguments are seen by everybody on the machine. Raises
    ConfigError, which names the file unless what was given may be the key itself.
    """
    if file is None:
        return os.environ.get(variable, "")
    try:
        key = file.read_text().partition("\n")[0].strip()
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or "it is not text"
        raise ConfigError(
            f"{_key_file(file)} cannot be read ({reason}): name a file, or put the key in {variable}"
        ) from error
    if not key:
        raise ConfigError(f"{_key_file(file)} is empty: write the key in its first line, or set {variable}")
    return key


def _key_file(file: Path) -> str:
    """Return the words for a key file, without its name where that may be a key typed in its place."""
    is_path = file.is_absolute() or file.parent.is_dir()
    return f"the key file {file}" if is_path and not LIKE_A_KEY.fullmatch(file.name) else "the key file"


@dataclasses.dataclass(frozen=True, slots=True)
class Raw:
    """The value of a flag or an override: text until the type of its field is known."""

    text: str

    def parsed(self) -> Any:
        try:
            return tomllib.loads(f"value = {self.text}")["value"]
        except tomllib.TOMLDecodeError:
            return self.text


def load(schema: type[T], path: Path | None = None, overrides: Sequence[str] = (), *, table: str = "") -> T:
    """Return the defaults of `schema`, changed by the file, or one `table` of it, changed by the overrides.

    Raises ConfigError for a file that is missing or not TOML, a missing table, an unknown or missing key, a
    value of the wrong type, and a value that the dataclass itself refuses with ValueError.
    """
    tree = {} if path is None else _read(path)
    _use(schema, tree, path)
    if table and table not in tree:
        raise ConfigError(f"{path}: there is no table [{table}]")
    config: T = _build(schema, None, tree[table] if table else tree, str(path), "")
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"override {override!r}: write it as key=value, for example train.steps=100")
        change: Any = Raw(text.strip())
        for name in reversed(key.strip().split(".")):
            change = {name: change}
        config = _build(schema, config, change, f"override {override!r}", "")
    return config


def read(schema: type[T], values: Any, origin: str) -> T:
    """Return the dataclass that `values` describes, such as parsed JSON; `origin` names their source.

    Raises ConfigError, as `load` does.
    """
    config: T = _build(schema, None, values, origin, "")
    return config


def dump(config: Any) -> str:
    """Return TOML that `load` turns back into an equal config."""
    return "\n".join(_tables(config, "")).strip() + "\n"


def dump_tables(configs: Mapping[str, Any]) -> str:
    """Return TOML with one table for each config, which `load` turns back by the table's name."""
    lines = (line for name in configs for line in (f"\n[{name}]", *_tables(configs[name], f"{name}.")))
    return "\n".join(lines).strip() + "\n"


def settings_of(schema: type[T], arguments: Sequence[str] | None, program: str, description: str | None) -> T:
    """Return the settings of a process: from `--config FILE --table NAME`, or from one flag for each field.

    The fields of a nested dataclass are flags like the others. Wrong arguments end the process with status 2.
    """
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--config", type=Path, help="TOML file with the settings, instead of the other flags")
    parser.add_argument("--table", default="", help="the table of that file to read")
    _add_flags(parser, schema, "")
    given = vars(parser.parse_args(arguments))
    try:
        extend.inherit()
    except extend.PluginError as error:
        parser.error(str(error))
    path, table = given.pop("config"), given.pop("table")
    flags = {name: value for name, value in given.items() if value is not None}
    try:
        if path is None:
            return read(schema, _nested(schema, flags, ""), "the command line")
        if flags:
            raise ConfigError("--config goes with --table alone: put the other settings into the file")
        return load(schema, path, table=table)
    except ConfigError as error:
        parser.error(str(error))


def _add_flags(parser: argparse.ArgumentParser, schema: type[Any], where: str) -> None:
    hints, texts = get_type_hints(schema), _field_texts(schema)
    for field in _fields(schema):
        kind, name = hints[field.name], where + field.name
        if dataclasses.is_dataclass(kind):
            _add_flags(parser, kind, f"{name}.")  # type: ignore[arg-type]
            continue
        flag = field.metadata.get("flag", "--" + field.name.replace("_", "-"))
        about: dict[str, Any] = {"dest": name, "help": texts.get(field.name, "").replace("%", "%%")}
        if kind is bool:
            about |= {"action": "store_const", "const": True}
        else:
            about |= {"type": Raw, "metavar": field.name.upper()}
            if get_origin(kind) is tuple:
                about["action"] = "append"
        parser.add_argument(flag, **about)


def _nested(schema: type[Any], flags: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the flags as a tree of tables; a nested dataclass without any flag has its defaults."""
    hints = get_type_hints(schema)
    tree = {}
    for field in _fields(schema):
        name = where + field.name
        if dataclasses.is_dataclass(hints[field.name]):
            tree[field.name] = _nested(hints[field.name], flags, f"{name}.")
        elif name in flags:
            tree[field.name] = flags[name]
    return tree


def _field_texts(schema: type[Any]) -> dict[str, str]:
    """Return the string under each field of a dataclass and of those that it inherits from."""
    texts = {}
    for owner in reversed([each for each in schema.__mro__ if dataclasses.is_dataclass(each)]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in itertools.pairwise(definition.body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                name, words = ast.unparse(field.target), ast.literal_eval(text.value)
                texts[name] = " ".join(words.split())
    return texts


def _use(schema: type[Any], tree: dict[str, Any], path: Path | None) -> None:
    """Load the plug-ins that a file names. A schema with a field for them keeps them, under whole paths."""
    names = tree.pop("use", [])
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise ConfigError(f'{path}: use is {names!r}: write a list of plug-ins, such as ["my_team.py"]')
    try:
        folder = Path() if path is None else path.parent
        plugins = [extend.use(each, beside=folder, by=str(path)) for each in names]
    except extend.PluginError as error:
        raise ConfigError(f"{path}: {error}") from error
    if plugins and "use" in _names(schema):
        tree["use"] = [each.name for each in plugins]


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error


_hints: Any = functools.cache(get_type_hints)
"""The types of a schema's fields, which take a millisecond to find out."""


def _build(schema: type[Any], base: Any, tree: Any, origin: str, where: str) -> Any:
    """Return `base`, or a default `schema`, with the values of `tree`, a table at the dotted path `where`."""
    if not isinstance(tree, Mapping):
        raise ConfigError(
            f"{origin}: {where[:-1]} is a table of {', '.join(_names(schema))}, got a single value"
        )
    hints, fields = _hints(schema), {field.name: field for field in _fields(schema)}
    values = {}
    for name, value in tree.items():
        if name not in fields:
            raise ConfigError(f"{origin}: unknown key {where + name!r}{_nearest(name, schema, where)}")
        current = _default(fields[name]) if base is None else getattr(base, name)
        values[name] = _convert(hints[name], current, value, origin, where + name)
    if base is None and (
        missing := [name for name in fields if name not in values and _is_required(fields[name])]
    ):
        raise ConfigError(f"{origin}: {' and '.join(where + name for name in missing)} must be given")
    try:
        return schema(**values) if base is None else dataclasses.replace(base, **values)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{origin}: {where[:-1] or schema.__name__}: {error}") from error


def _fields(schema: type[Any]) -> list[dataclasses.Field[Any]]:
    return [
        field for field in dataclasses.fields(schema) if field.init and field.metadata.get("setting", True)
    ]


def _names(schema: type[Any]) -> list[str]:
    return [field.name for field in _fields(schema)]


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is field.default_factory is dataclasses.MISSING


def _default(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a field that is a dataclass, so that a table changes single values of it."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


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
    """Return `value` as a `kind`; the ValueError or TypeError says what was expected."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        return _optional(inner, value)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _item(kind, value)  # type: ignore[arg-type]
    if isinstance(value, Raw):
        return _value(kind, _unquoted(value) if _is_text(kind) else value.parsed())
    if origin is tuple:
        return _tuple(inner, value)
    if origin in {dict, Mapping}:
        return {name: _value(inner[1], item) for name, item in _expect(dict, value).items()}
    if origin is Literal:
        return _one_of(inner, value)
    return _scalar(kind, value)


def _item(kind: type[Any], value: Any) -> Any:
    """Build a dataclass inside a tuple, a mapping or an optional field; the caller knows the key."""
    try:
        return _build(kind, None, value, "", "")
    except ConfigError as error:
        raise ValueError(str(error).removeprefix(": ")) from error


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
    """Yield lines of TOML: the plain keys of this table first, then one table for each nested dataclass."""
    values = [(field, getattr(config, field.name)) for field in _fields(type(config))]
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
    if dataclasses.is_dataclass(value):
        return _toml({name: getattr(value, name) for name in _names(type(value))}, key)
    if value is None:
        return _text(NONE)
    if isinstance(value, str | Path):
        return _text(str(value))
    raise ConfigError(f"{key}: a {type(value).__name__} has no form in TOML")


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
