"""The embedded engine keeps the contract of every engine, with each forward pass.

Covers engine/base.py and engine/limits.py.
"""

from collections.abc import AsyncIterator

import pytest
from tests.engine.contract import MAX_LEN, Contract, model
from tests.engine.toolbox import FORWARDS

from ostinato.engine.embedded.engine import EmbeddedEngine


class TestEmbedded(Contract):
    @pytest.fixture(params=FORWARDS)
    async def served(self, request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedEngine]:
        engine = EmbeddedEngine(model(1), version=1, slots=8, max_len=MAX_LEN, forward=request.param)
        yield engine
        await engine.aclose()
