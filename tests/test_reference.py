"""The pages by which things are found agree with the code: index, glossary, reference and README."""

import html
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from ostinato import types

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "ostinato"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
CODE = ("src", "tests", "benchmarks", "experiments", "fuzz", "docs", "lab")
OF_A_TASK = {"calc.py", "test_hidden.py"}
"""Files of the repositories that agents work on."""
LINK = re.compile(r"!?\[[^\]\n]*\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """Return a page without its blocks and spans of code."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere() -> None:
    for page in PAGES:
        for target in LINK.findall(prose(page)):
            if "://" not in target:
                path, _, anchor = target.partition("#")
                linked = page.parent / path if path else page
                assert linked.exists(), f"{page}: {target}"
                assert not anchor or anchor in anchors(linked), f"{page}: {target}"


def test_every_source_file_that_is_named_exists() -> None:
    """A page often names a file of its room alone, as `ledger.py`, or with a part of its path."""
    files = [str(path.relative_to(ROOT)) for folder in CODE for path in (ROOT / folder).rglob("*.py")]
    parts = {file.split("/", depth)[-1] for file in files for depth in range(file.count("/") + 1)}
    for page in DOCS.rglob("*.md"):
        named = set(re.findall(r"`((?:[\w-]+/)*\w+\.py)`", page.read_text())) - OF_A_TASK
        assert not named - parts, page


def test_the_index_lists_every_page() -> None:
    listed = set(LINK.findall((DOCS / "index.md").read_text()))
    assert {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} == listed | {"index.md"}


def test_the_glossary_has_every_noun_that_crosses_rooms() -> None:
    nouns = {name for name, noun in vars(types).items() if isinstance(noun, type)}
    written = set(re.findall(r"^\| `(\w+)` \|", (DOCS / "glossary.md").read_text(), re.MULTILINE))
    assert nouns == written


def test_the_reference_is_what_the_code_says() -> None:
    command = [sys.executable, str(DOCS / "reference" / "make.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_argument_of_every_command_has_its_meaning() -> None:
    page = (DOCS / "reference" / "commands.md").read_text()  # which the test above holds equal to the parsers
    rows = re.findall(r"^\| (`.+?`) \|.*\| *(.*?) *\|$", page, re.MULTILINE)
    assert len(rows) > 100
    assert not [argument for argument, meaning in rows if not meaning]


def test_the_readme_names_every_room_once() -> None:
    text = (ROOT / "README.md").read_text()
    tree = text.partition("```\nsrc/ostinato/\n")[2].partition("```")[0]
    files = {"config.py", "cli.py"}
    rooms = {f"{path.name}/" for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert sorted(line.split()[0] for line in tree.splitlines()) == sorted(files | rooms)
    assert text.count("\n") <= 120
    assert (ROOT / "AGENTS.md").read_text().count("\n") <= 80


def test_the_picture_shows_the_recorded_session() -> None:
    session = (DOCS / "code.md").read_text().partition("```\nostinato in")[2].partition("```")[0]
    drawing = (DOCS / "session.svg").read_text()
    drawn = html.unescape(re.sub(r"<[^>]+>|\s", "", drawing.partition("<g class=")[2])).replace("\xa0", "")
    for line in session.strip().splitlines():
        assert "".join(line.split()) in drawn, line
