"""Requests that are generated from the gateway's own OpenAPI document never get a 5xx."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from tests.gateway.conftest import KEY, serving

from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.store import Store
from ostinato.types import Arm


class Background:
    """Run an event loop in a thread, since the generating library's requests block."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def address(store: Store, renderer, script) -> Iterator[str]:
    background = Background()

    async def open_() -> AsyncIterator[str]:
        engine = await serve_scripted(ScriptedEngine(script))
        store.set_arms([Arm(name="main", version=3, share=1.0, engines=(engine.url,))])
        async with serving(store, renderer) as url:
            yield url
        await engine.close()

    gateway = open_()
    yield background.run(anext(gateway))
    background.run(anext(gateway, None))
    background.close()


@pytest.mark.slow
def test_no_request_of_the_schema_makes_it_fail(address: str) -> None:
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    seen: dict[str, set[int]] = {}
    for found in schema.get_all_operations():
        operation = found.ok()
        _drive(operation, address, seen.setdefault(operation.label, set()))
    assert len(seen) >= 11
    assert all(min(statuses) == 200 for label, statuses in seen.items() if "/v1/" in label), seen


def _drive(operation: Any, address: str, seen: set[int]) -> None:
    @given(case=operation.as_strategy())
    @settings(
        max_examples=30,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def each(case: Any) -> None:
        if isinstance(case.body, dict) and "model" in case.body:
            case.body["model"] = "ostinato"  # any other is refused before the rest is read
        case.path_parameters.update({"name": "ostinato"} if "name" in case.path_parameters else {})
        response = case.call(base_url=address, headers={"Authorization": f"Bearer {KEY}"})
        seen.add(response.status_code)
        case.validate_response(response, checks=[not_a_server_error])

    each()
