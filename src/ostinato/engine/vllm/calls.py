"""The calls to a vLLM server that are not about tokens, whoever started it."""

from collections.abc import Mapping
from typing import Any

import aiohttp

from ostinato.engine.base import EngineError

SWAPS = ("/pause", "/resume", "/collective_rpc")
"""The routes by which weights are replaced; a server has them in its development mode."""


class VllmCalls:
    """The client of one server; errors begin with `name`, and end with `advice` when it does not respond."""

    def __init__(self, http: aiohttp.ClientSession, name: str, advice: str) -> None:
        self.http, self._name, self._advice = http, name, advice
        self.routes: frozenset[str] = frozenset()

    async def lacks(self) -> list[str]:
        """Read the routes of this version; return those by which weights are replaced that it has not."""
        self.routes = frozenset((await self.get("/openapi.json"))["paths"])
        return [route for route in SWAPS if route not in self.routes]

    async def get(self, path: str) -> Any:
        return await self._request("GET", path, None)

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the response as JSON. Raises EngineError for an error status and when the server is gone."""
        return await self._request("POST", path, body)

    async def call_workers(self, method: str, *arguments: str) -> None:
        """Run a method of every worker. Raises EngineError with the first error."""
        response = await self.post("/collective_rpc", {"method": method, "args": list(arguments)})
        errors = [result["error"] for result in response["results"] if "error" in result]
        if errors:
            raise EngineError(f"vLLM's worker, {method}: {errors[0]}")

    async def text(self, path: str, body: Mapping[str, Any] | None = None) -> str:
        """Return the response as it is, of a GET or, with a body, of a POST. Raises EngineError as `post`."""
        verb = "GET" if body is None else "POST"
        return await self._request(verb, path, body, plain=True)  # type: ignore[no-any-return]

    async def _request(
        self, verb: str, path: str, body: Mapping[str, Any] | None, *, plain: bool = False
    ) -> Any:
        try:
            async with self.http.request(verb, path, json=body) as response:
                if response.status != 200:
                    raise EngineError(
                        f"{self._name}{path}: {response.status} {(await response.text())[:300]}"
                    )
                return await (response.text() if plain else response.json(content_type=None))
        except (aiohttp.ClientError, TimeoutError) as error:
            words = str(error) or type(error).__name__  # some errors of the client have no words
            raise EngineError(f"{self._name}{path}: it does not respond ({words}): {self._advice}") from error
