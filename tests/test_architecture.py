"""The shape of the code: layers between rooms and inside them, sizes, torch's place, settings, words."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import ostinato

ROOT = Path(ostinato.__file__).parent
TESTS = Path(__file__).parent
LAYERS = [
    {"types"},
    {"config", "laboratory", "store", "web"},
    {"model", "tasks", "sandbox", "sync"},
    {"engine", "train", "harness", "gateway", "rewards", "deploy", "search", "edits", "fleet", "dashboard"},
    {"rollout", "bench"},
    {"loop"},
    {"demo"},
    {"cli"},
]
LAYER = {part: depth for depth, parts in enumerate(LAYERS) for part in parts}
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem in LAYER)
MAX_FILE, MAX_FUNCTION, MAX_FILES = 400, 60, 20
TORCH_ROOMS = {"model", "sync", "engine", "train"}
TORCH_FREE = [
    "ostinato.cli",
    "ostinato.gateway.app",
    "ostinato.gateway.server",
    "ostinato.harness.agent",
    "ostinato.model.families",
    "ostinato.sandbox.exam.verifier",
    "ostinato.search.server",
    "ostinato.dashboard.server",
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


QUESTIONS = {
    "what",
    "who",
    "whose",
    "whom",
    "whoever",
    "whatever",
    "whether",
    "which",
    "when",
    "where",
    "how",
    "why",
}
# fmt: off
PREPOSITIONS = {
    "of", "in", "at", "on", "for", "by", "with", "from", "to", "into", "over", "under", "after", "before",
    "between", "behind", "through", "as", "beside", "besides", "above", "below", "about", "across",
    "against", "along", "among", "around", "during", "inside", "outside", "per", "since", "than", "toward",
    "towards", "until", "up", "upon", "via", "within", "without", "off", "onto", "out",
}
# fmt: on
PUBLIC = {"ostinato.harness.scripted": "a shipped fake"}
"""Modules that nothing in `src` imports, with the reason why they are shipped."""


def module(path: Path) -> str:
    return ".".join((ROOT.name, *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {module(path): path for path in FILES}


@cache
def reached(name: str) -> frozenset[str]:
    """Return the modules of ours that a module imports."""
    names = imported(MODULES[name])
    return frozenset(
        {n for n in names if n in MODULES} | {n.rpartition(".")[0] for n in names} & MODULES.keys()
    )


def rooms_within(folder: str) -> dict[str, set[str]]:
    """The files and folders that lie in a folder, and the others of them that each imports."""
    depth = folder.count(".") + 1
    inside = {name for name in MODULES if name.startswith(f"{folder}.")}

    def child(name: str) -> str:
        return ".".join(name.split(".")[: depth + 1])

    arrows: dict[str, set[str]] = {child(name): set() for name in inside}
    for name in inside:
        arrows[child(name)] |= {child(other) for other in reached(name) & inside} - {child(name)}
    return arrows


FOLDERS = sorted({module(path.parent / "__init__.py") for path in FILES if path.parent != ROOT})


@pytest.mark.parametrize("folder", FOLDERS)
def test_arrows_inside_a_room_point_one_way(folder: str) -> None:
    assert TopologicalSorter(rooms_within(folder)).prepare() is None


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_is_small_and_says_what_lives_in_it(folder: str) -> None:
    path = ROOT.joinpath(*folder.split(".")[1:])
    assert len([*path.glob("*.py")]) <= MAX_FILES
    assert ast.get_docstring(tree(path / "__init__.py"))


def test_the_sandbox_has_few_arrows_and_layers() -> None:
    arrows = rooms_within("ostinato.sandbox")
    folders = {name for name in arrows if MODULES[name].name == "__init__.py"}
    assert sum(len(to & folders) for name, to in arrows.items() if name in folders) <= 40
    sorter = TopologicalSorter(arrows)
    sorter.prepare()
    layers = 0
    while sorter.is_active():
        sorter.done(*sorter.get_ready())
        layers += 1
    assert layers <= 8


def test_one_public_name_means_one_class() -> None:
    """The house nouns of `types` are among them. A name is public when it has no underscore in front."""
    defined = [
        node.name
        for path in FILES
        for node in tree(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert not [name for name, count in Counter(defined).items() if count > 1]


def test_every_module_is_reached() -> None:
    imports = set().union(*(reached(name) - {name} for name in MODULES))
    started = {
        name
        for path in FILES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in re.findall(r"ostinato(?:\.\w+)+", node.value)
    }
    alone = {name for name, path in MODULES.items() if not path.name.startswith("__")} - imports - started
    assert alone - {"ostinato.cli"} == PUBLIC.keys()


def test_tests_mirror_the_source() -> None:
    rooms = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("_")}
    assert rooms <= {path.name for path in TESTS.iterdir() if path.is_dir()}


def test_tests_and_benchmarks_share_only_what_lies_in_fuzz() -> None:
    """`fuzz` holds the generators that both need, and imports neither."""
    around = TESTS.parent
    foreign = {"tests": {"benchmarks"}, "benchmarks": {"tests"}, "fuzz": {"tests", "benchmarks"}}
    for folder, others in foreign.items():
        for path in (around / folder).rglob("*.py"):
            assert not {name.split(".")[0] for name in imported(path)} & others, path


def docstrings(path: Path) -> Iterator[str]:
    """Yield the docstrings of a file, those that follow an attribute among them."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                yield text.strip()


def test_docstrings_open_with_a_verb_or_a_noun_phrase() -> None:
    opened = [(label(path), doc.partition("\n")[0]) for path in FILES for doc in docstrings(path)]
    fragments = [
        (where, line)
        for where, line in opened
        if re.split(r"[^\w']", line, maxsplit=1)[0].lower() in QUESTIONS | PREPOSITIONS
    ]
    assert len(fragments) <= len(opened) / 100, fragments


def test_every_module_has_its_test_file_or_is_named_in_the_header_of_one() -> None:
    headers = " ".join(ast.get_docstring(tree(path)) or "" for path in TESTS.rglob("*.py"))
    modules = [path.relative_to(ROOT) for path in FILES if not path.name.startswith("__")]
    assert not [
        str(path)
        for path in modules
        if not (TESTS / path.parent / f"test_{path.name}").exists() and str(path) not in headers
    ]


LABORATORY = TESTS.parent / "lab" / "ostinato_lab"
LABORATORY_FILES = sorted(LABORATORY.rglob("*.py"))


def test_the_laboratory_lies_above_the_product() -> None:
    """Only `laboratory.py` knows its name, and it imports nothing of it before a command runs."""
    assert not [
        str(path)
        for path in FILES
        if any(name.split(".")[0] == LABORATORY.name for name in imported(path))
        or (LABORATORY.name in path.read_text() and path.name != "laboratory.py")
    ]


def test_the_laboratory_keeps_to_the_sizes_of_the_house() -> None:
    for path in LABORATORY_FILES:
        test_nothing_is_long(path)
        assert ast.get_docstring(tree(path)), path
        assert len([*path.parent.glob("*.py")]) <= MAX_FILES, path.parent


def test_the_programs_of_the_laboratory_import_no_cycle_and_not_each_other() -> None:
    names = {
        ".".join((LABORATORY.name, *path.relative_to(LABORATORY).with_suffix("").parts)): path
        for path in LABORATORY_FILES
    }
    arrows = {
        name: {each.rpartition(".")[0] for each in imported(path)} & names.keys()
        for name, path in names.items()
    }
    assert TopologicalSorter(arrows).prepare() is None
    assert not [
        n for n, to in arrows.items() if any(n.split(".")[1:2] != other.split(".")[1:2] for other in to)
    ]


def test_every_program_of_the_laboratory_has_its_tests() -> None:
    programs = {path.name for path in LABORATORY.iterdir() if (path / "__init__.py").exists()}
    assert programs <= {path.name for path in (TESTS / "lab").iterdir() if path.is_dir()}
