"""Covers types/task.py, types/session.py, types/version.py, types/release.py and types/access.py.

The nouns hold data only, so the tests check that each has an example in its docstring, and that it is true.
"""

import doctest
import importlib
import pkgutil
from dataclasses import is_dataclass
from types import ModuleType

import pytest

from ostinato import types

MODULES = [
    importlib.import_module(f"ostinato.types.{each.name}") for each in pkgutil.iter_modules(types.__path__)
]
NOUNS = [noun for name in types.__all__ if is_dataclass(noun := getattr(types, name))]


@pytest.mark.parametrize("noun", NOUNS)
def test_every_noun_has_an_example_of_itself(noun: type) -> None:
    examples = doctest.DocTestParser().get_examples(noun.__doc__ or "")
    assert [example for example in examples if f"{noun.__name__}(" in example.source]


@pytest.mark.parametrize("module", MODULES)
def test_every_example_is_true(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert not result.failed


def test_the_package_exports_every_public_noun() -> None:
    public = {name for module in MODULES for name, value in vars(module).items() if is_public(module, value)}
    assert public <= set(types.__all__)


def is_public(module: ModuleType, value: object) -> bool:
    """Return whether `module` itself defines the public class `value`."""
    return (
        isinstance(value, type) and value.__module__ == module.__name__ and not value.__name__.startswith("_")
    )
