"""The shape of the code, kept by tests: layers, sizes, torch's place and settings."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import ostinato

ROOT = Path(ostinato.__file__).parent
TESTS = Path(__file__).parent
LAYERS = [
    {"types"},
    {"config", "store", "web"},
    {"model", "tasks", "sandbox", "sync"},
    {"engine", "train", "harness", "gateway", "rewards", "deploy", "dashboard", "search", "edits", "fleet"},
    {"rollout", "bench"},
    {"loop"},
    {"demo"},
    {"cli"},
]
LAYER = {part: depth for depth, parts in enumerate(LAYERS) for part in parts}
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem in LAYER)
MAX_FILE, MAX_FUNCTION = 400, 60
TORCH_ROOMS = {"model", "sync", "engine", "train"}
TORCH_FREE = [
    "ostinato.cli",
    "ostinato.gateway.app",
    "ostinato.gateway.server",
    "ostinato.harness.agent",
    "ostinato.model.renderer",
    "ostinato.sandbox.exam.verifier",
    "ostinato.search.server",
    "ostinato.tasks.pebble",
    "ostinato.engine.scripted",
    "ostinato.web.protocol",
]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def part(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Dotted names that `path` imports, at any depth of nesting."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def imported_parts(path: Path) -> set[str]:
    names = {name.split(".")[1] for name in imported(path) if name.startswith(f"{ROOT.name}.")}
    return names & LAYER.keys()


def label(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=label)
def test_imports_point_down(path: Path) -> None:
    here = part(path)
    assert not {p for p in imported_parts(path) if p != here and LAYER[p] >= LAYER[here]}


@pytest.mark.parametrize("path", FILES, ids=label)
def test_torch_stays_in_its_rooms(path: Path) -> None:
    uses_torch = any(name.split(".")[0] == "torch" for name in imported(path))
    assert not uses_torch or part(path) in TORCH_ROOMS


@pytest.mark.parametrize("module", TORCH_FREE)
def test_starts_without_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("path", FILES, ids=label)
def test_nothing_is_long(path: Path) -> None:
    assert path.read_text().count("\n") <= MAX_FILE
    functions = [n for n in ast.walk(tree(path)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert not [f.name for f in functions if (f.end_lineno or 0) - f.lineno >= MAX_FUNCTION]


def test_every_setting_is_read() -> None:
    """A field of a `*Config` class must be read as an attribute somewhere."""
    nodes = [node for path in FILES for node in ast.walk(tree(path))]
    read = {n.attr for n in nodes if isinstance(n, ast.Attribute)}
    configs = [n for n in nodes if isinstance(n, ast.ClassDef) and n.name.endswith("Config")]
    fields = {
        f.target.id
        for c in configs
        for f in c.body
        if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name)
    }
    assert not fields - read


def test_tests_mirror_the_source() -> None:
    rooms = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("_")}
    assert rooms <= {path.name for path in TESTS.iterdir() if path.is_dir()}
