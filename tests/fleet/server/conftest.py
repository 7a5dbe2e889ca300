"""A front with its node, as `ostinato sandbox serve` runs them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sandbox.conftest import served
from tests.watchdog import watched


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("front")


@pytest.fixture(scope="session")
def front(state: Path) -> Iterator[tuple[str, str]]:
    """Return the URL and key of a front that refuses nothing because the tests keep the CPU busy."""
    with served("serve", state, "--cpu-limit", "2", "--memory-overcommit", "8") as url:
        yield url, (state / "key").read_text()


@pytest.fixture(scope="session")
def templates(state: Path, front: tuple[str, str]) -> Path:
    directory = state / "templates"
    (directory / "base").mkdir()
    (directory / "base" / "a.py").write_text("print('a')\n")
    return directory


@pytest.fixture(autouse=True)
def awake() -> Iterator[None]:
    """Fail if a callback of a server in this process blocks its event loop: see `tests/watchdog.py`."""
    with watched():
        yield
