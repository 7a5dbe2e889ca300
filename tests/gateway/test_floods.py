"""Floods at a tenth of their full size: a server holds little memory and still responds."""

import pytest
from fuzz.floods import FLOODS, MOST_MB, measure, servers

SCALE = 0.1


@pytest.fixture(scope="module")
def running():
    with servers(["gateway", "search"]) as addresses:
        yield addresses


@pytest.mark.parametrize("name", [name for name, flood in FLOODS.items() if flood.server != "sandbox"])
def test_a_flood_is_survived(name: str, running) -> None:
    flood = FLOODS[name]
    outcome = measure(flood, *running[flood.server], SCALE, apart=False)
    assert outcome.held_mb <= MOST_MB
    assert outcome.n >= 1 and not outcome.failed
