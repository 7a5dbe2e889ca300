"""The embedded engine keeps the contract of every engine, with each forward pass.

Covers engine/base.py and engine/limits.py.
"""

from collections.abc import AsyncIterator

import pytest
from tests.engine.contract import MAX_LEN, Contract, model
from tests.engine.toolbox import FORWARDS, NEEDS_KERNEL

from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.embedded.native import NativeForward


class Drafting(NativeForward):
    """The kernel, for an engine that drafts."""


class TestEmbedded(Contract):
    @pytest.fixture(params=[*FORWARDS, pytest.param(Drafting, marks=NEEDS_KERNEL)])
    async def served(self, request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedEngine]:
        drafts = 5 if request.param is Drafting else 0
        engine = EmbeddedEngine(
            model(1), version=1, slots=8, max_len=MAX_LEN, drafts=drafts, forward=request.param
        )
        yield engine
        await engine.aclose()
