"""The sources of the programs that run suites of Python, as they travel in an order."""

from pathlib import Path
from types import ModuleType

from ostinato.sandbox.exam.guarded.inside import (
    equality,
    parts,
    planted,
    root,
    start,
    under_pytest,
    under_unittest,
    watch,
    witness,
)

_INSIDE = (planted, root, watch, witness, equality, parts, under_pytest, under_unittest)
MODULES: dict[str, ModuleType] = {each.__name__: each for each in _INSIDE}
"""The modules by name, each after those that it imports."""
SOURCES = {name: Path(str(module.__file__)).read_text() for name, module in MODULES.items()}
START = Path(str(start.__file__)).read_text()
