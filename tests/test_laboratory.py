"""The door to the laboratory: what it opens, and the sentence where nothing is behind it."""

import argparse
import ast
import pkgutil
from pathlib import Path

import pytest

from ostinato import laboratory as door
from ostinato.laboratory import LaboratoryError, laboratory

SOURCE = Path(door.__file__).parent


def test_every_command_that_the_product_names_is_there() -> None:
    calls = [
        node.args[0].value
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "laboratory"
        if isinstance(node.args[0], ast.Constant)
    ]
    assert len(calls) == 4
    assert all(callable(pkgutil.resolve_name(f"{door.LABORATORY}.{name}")) for name in calls)


def test_a_missing_package_is_said_when_the_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "LABORATORY", "ostinato_absent")
    command = laboratory("week.command:simulate")
    with pytest.raises(LaboratoryError, match="ostinato_absent, which is not installed"):
        command(argparse.Namespace())


def test_a_fault_inside_the_laboratory_keeps_its_own_error() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"ostinato_lab\.absent"):
        laboratory("absent.command:run")(argparse.Namespace())
