"""The settings of a repository that its tests need where nothing of it is installed."""

import re
from collections.abc import Mapping

PYTEST_TABLE = re.compile(r"^\[tool\.pytest(\.ini_options)?\]\s*$", re.MULTILINE)
SETTINGS = ("pyproject.toml", "pytest.ini", "tox.ini", "setup.cfg")
PLUGINS = {"pytest_asyncio.plugin": re.compile(r"^\s*asyncio_mode\b", re.MULTILINE)}
"""The plugins that a sandbox does not load by itself, and the setting by which a repository asks for each."""
STRICT = re.compile(r"^\s*filterwarnings\b[^\n]*(\n\s+[^\n]*)*?\berror\b", re.MULTILINE)
QUIET = ("-W", "ignore::pytest.PytestConfigWarning")
"""Without the plugins that it names, a repository has settings that pytest does not know."""
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


def pytest_arguments(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the arguments that the tests of a repository need where plugins are not loaded by themselves."""
    text = "\n".join(files[name].decode(errors="replace") for name in SETTINGS if name in files)
    plugins = [word for name, asks in PLUGINS.items() if asks.search(text) for word in ("-p", name)]
    return (*plugins, *(QUIET if STRICT.search(text) else ()))


def _after(text: str, head: re.Match[str], line: str) -> bytes:
    end = text.find("\n", head.start()) + 1 or len(text)
    return f"{text[:end]}{line}\n{text[end:]}".encode()
