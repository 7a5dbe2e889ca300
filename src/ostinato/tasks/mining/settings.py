"""The settings of a repository that its tests need where nothing of it is installed."""

import re
from collections.abc import Mapping

PYTEST_TABLE = re.compile(r"^\[tool\.pytest(\.ini_options)?\]\s*$", re.MULTILINE)
INI_TABLES = {"pytest.ini": "pytest", "tox.ini": "pytest", "setup.cfg": "tool:pytest"}


def with_source_path(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files with pytest told of the folder `src`, where the packages lie there.

    The package is not installed, so `python -m pytest` would test another release of it, or none.
    """
    changed = dict(files)
    if not any(path.startswith("src/") and path.endswith(".py") for path in files):
        return changed
    text = files.get("pyproject.toml", b"").decode(errors="replace")
    found = PYTEST_TABLE.search(text)
    for name, table in INI_TABLES.items():
        ini = files.get(name, b"").decode(errors="replace")
        head = re.search(rf"^\[{re.escape(table)}\]\s*$", ini, re.MULTILINE)
        if head and (name == "pytest.ini" or not found):
            if not re.search(r"^pythonpath\b", ini, re.MULTILINE):
                changed[name] = _after(ini, head, "pythonpath = src")
            return changed
    if found:
        if not re.search(r"^pythonpath\b", text, re.MULTILINE):
            changed["pyproject.toml"] = _after(text, found, 'pythonpath = ["src"]')
    else:
        changed["pytest.ini"] = b"[pytest]\npythonpath = src\n"
    return changed


def _after(text: str, head: re.Match[str], line: str) -> bytes:
    end = text.find("\n", head.start()) + 1 or len(text)
    return f"{text[:end]}{line}\n{text[end:]}".encode()
