"""The shape of the code: layers between rooms and inside them, sizes, torch's place, settings, words."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from tests.arrows import SOURCES, imported, module, reached, started, tree

from ostinato import ROOMS

PACKAGE = SOURCES["ostinato"]
TESTS = Path(__file__).parent
LAYERS = [
    {"extend", "extras", "types"},
    {"config", "git", "laboratory", "store", "web"},
    {"data", "model", "tasks", "sandbox", "sync"},
    {"engine", "train", "harness", "gateway", "rewards", "deploy", "search", "edits", "dashboard"},
    {"mining", "rollout", "bench", "exchange"},
    {"loop"},
    {"demo"},
    {"cli"},
]
LAYER = {part: depth for depth, parts in enumerate(LAYERS) for part in parts}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem in LAYER)
LABORATORY = SOURCES["ostinato_lab"]
LABORATORY_FILES = sorted(LABORATORY.rglob("*.py"))
MAX_FILE, MAX_FUNCTION, MAX_FILES = 400, 60, 20
TORCH_ROOMS = {"model", "sync", "engine", "train"}
TORCH_FREE = [
    "ostinato.cli",
    "ostinato.data.commands",
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


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    names = {name.split(".")[1] for name in imported(path) if name.startswith(f"{PACKAGE.name}.")}
    return names & LAYER.keys()


def label(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def test_imports_point_down() -> None:
    assert not [
        f"{label(path)} imports {other}"
        for path in FILES
        for other in imported_parts(path)
        if other != part(path) and LAYER[other] >= LAYER[part(path)]
    ]


def test_torch_stays_in_its_rooms() -> None:
    users = [path for path in FILES if any(name.split(".")[0] == "torch" for name in imported(path))]
    assert not [label(path) for path in users if part(path) not in TORCH_ROOMS]


STARTS_GIT = {"git.py", "harness/tools/find.py"}
"""The room that starts git, and the tool that does so in a sandbox, by a text."""
NAMES_GIT = {"harness/permissions/views.py", "harness/permissions/policy.py"}


def test_one_function_starts_git() -> None:
    """A command is a sequence that begins with git, or a text of a shell."""
    nodes = [(label(path), node) for path in FILES for node in ast.walk(tree(path))]
    sequences = {
        name
        for name, node in nodes
        if isinstance(node, ast.List | ast.Tuple) and node.elts
        if isinstance(node.elts[0], ast.Constant) and node.elts[0].value == "git"
    }
    texts = {
        name
        for name, node in nodes
        if isinstance(node, ast.Constant) and str(node.value).lstrip().startswith("git -")
    }
    starting = sequences | texts
    assert starting - NAMES_GIT == STARTS_GIT


def test_programs_start_without_torch() -> None:
    """One process imports them in turn and names the first that brings torch."""
    code = """import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    assert "torch" not in sys.modules, name"""
    done = subprocess.run(
        [sys.executable, "-c", code, *TORCH_FREE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_nothing_is_long() -> None:
    files = [*FILES, *LABORATORY_FILES]
    assert not [str(path) for path in files if path.read_text().count("\n") > MAX_FILE]
    assert not [
        f"{path}: {node.name}"
        for path in files
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION
    ]


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


MODULES = {module(path): path for path in FILES}


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


FOLDERS = sorted({module(path.parent / "__init__.py") for path in FILES if path.parent != PACKAGE})


def test_arrows_inside_a_room_point_one_way() -> None:
    for folder in FOLDERS:
        TopologicalSorter(rooms_within(folder)).prepare()  # raises CycleError, which names the cycle


def test_a_folder_is_small_and_says_what_lives_in_it() -> None:
    places = [PACKAGE.joinpath(*folder.split(".")[1:]) for folder in FOLDERS]
    assert not [label(path) for path in places if len([*path.glob("*.py")]) > MAX_FILES]
    assert not [label(path) for path in places if not ast.get_docstring(tree(path / "__init__.py"))]


def test_the_sandbox_has_few_arrows_and_layers() -> None:
    arrows = rooms_within("ostinato.sandbox")
    folders = {name for name in arrows if MODULES[name].name == "__init__.py"}
    assert sum(len(to & folders) for name, to in arrows.items() if name in folders) <= 23
    sorter = TopologicalSorter(arrows)
    sorter.prepare()
    layers = 0
    while sorter.is_active():
        sorter.done(*sorter.get_ready())
        layers += 1
    assert layers <= 9


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
    processes = set().union(*(started(path) for path in FILES))
    public = {f"{PACKAGE.name}.{room}" for room in ROOMS}
    alone = {name for name, path in MODULES.items() if not path.name.startswith("__")} - imports - processes
    alone -= public
    assert alone - {"ostinato.cli"} == PUBLIC.keys()


def test_tests_mirror_the_source() -> None:
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and not path.name.startswith("_")}
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
    modules = [path.relative_to(PACKAGE) for path in FILES if not path.name.startswith("__")]
    assert not [
        str(path)
        for path in modules
        if not (TESTS / path.parent / f"test_{path.name}").exists() and str(path) not in headers
    ]


def test_the_laboratory_lies_above_the_product() -> None:
    """Only `laboratory.py` knows its name, and it imports nothing of it before a command runs."""
    assert not [
        str(path)
        for path in FILES
        if any(name.split(".")[0] == LABORATORY.name for name in imported(path))
        or (LABORATORY.name in path.read_text() and path.name != "laboratory.py")
    ]


def test_the_folders_of_the_laboratory_are_small_and_say_what_lives_in_them() -> None:
    for path in LABORATORY_FILES:
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
