"""The hooks of the documentation's site: the menu is docs/index.md; files beside docs/ are shown too."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| \[([^]]+)\]\(([^)]+\.md)\) \|", re.MULTILINE)
OUTSIDE = re.compile(r"\]\((?:\.\./)+((?:examples|benchmarks|experiments|recipes)/[\w./-]+|[A-Z]+\.md)\)")
"""Links to what lies beside docs/ in the repository."""


def on_config(config: Any) -> Any:
    """Let each heading of docs/index.md be a part of the menu, and each row of its table a page."""
    parts = re.split(r"^## (.+)$", (ROOT / "docs/index.md").read_text(), flags=re.MULTILINE)[1:]
    pages = {title: ROW.findall(text) for title, text in zip(parts[::2], parts[1::2], strict=True)}
    menu = [{title: [{name: page} for name, page in rows]} for title, rows in pages.items()]
    config["nav"] = [{"Home": "index.md"}, *menu]
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Add the files outside of docs/ that its pages link to."""
    linked = {found for page in files.documentation_pages() for found in OUTSIDE.findall(page.content_string)}
    for name in sorted(linked):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Let links to files outside of docs/ go to their copies in the site, and theirs to docs/."""
    up = "../" * page.file.src_uri.count("/")
    return OUTSIDE.sub(lambda found: f"]({up}{found[1]})", markdown.replace("](docs/", "]("))
