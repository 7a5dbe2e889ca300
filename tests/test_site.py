"""The documentation as a site: built without a warning, all pages in the menu, all links leading somewhere.

Covers docs/site.py.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def built(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(command, cwd=root, env=quiet, capture_output=True, text=True, check=False)


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    done = built(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    menu = (tmp_path / "index.html").read_text()
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    assert not [page for page in pages if f'href="{page}/"' not in menu]
    assert 'href="../examples/live_fact.py"' in (tmp_path / "plugins" / "index.html").read_text()
    assert (tmp_path / "examples" / "live_fact.py").read_text() == (
        ROOT / "examples/live_fact.py"
    ).read_text()


def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path) -> None:
    (tmp_path / "mkdocs.yml").write_text((ROOT / "mkdocs.yml").read_text())
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/site.py").write_text((ROOT / "docs/site.py").read_text())
    (tmp_path / "docs/index.md").write_text("## Start\n\n| page | |\n|---|---|\n| [one](one.md) | |\n")
    (tmp_path / "docs/one.md").write_text("[no](other.md)\n")
    done = built(tmp_path, tmp_path / "site")
    assert done.returncode != 0 and "other.md" in done.stderr
