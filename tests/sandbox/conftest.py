"""A backend of each kind, and repositories to open in them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ostinato.sandbox import Backend, ProcessBackend, SandboxError, choose_backend

FILES = {
    "calc.py": "def alpha(a, b):\n    return a + b\n",
    "test_calc.py": "from calc import alpha\n\n\ndef test_alpha():\n    assert alpha(2, 3) == 5\n",
    "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-p no:cacheprovider"\n',
    "sub/note.txt": "hello\n",
    ".git/HEAD": "ref: refs/heads/main\n",
}


def write_files(directory: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


@pytest.fixture(scope="session")
def ns_backend() -> Iterator[Backend]:
    try:
        backend = asyncio.run(choose_backend("ns"))
    except SandboxError as error:
        pytest.skip(str(error))
    yield backend
    asyncio.run(backend.aclose())


@pytest.fixture(params=["process", "ns"])
def backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == "process":
        return ProcessBackend()
    found: Backend = request.getfixturevalue("ns_backend")
    return found


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return write_files(tmp_path / "repo", FILES)
