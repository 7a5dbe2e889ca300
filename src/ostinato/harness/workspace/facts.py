"""Facts about sessions on their way to the gateway: what it did not take is kept, and sent another time."""

import asyncio
import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from ostinato.harness.client import GatewayClient, GatewayRefused, GatewayUnavailable
from ostinato.types import Signal, from_json, to_json

FAREWELL_S = 2.0
"""The seconds that a person waits for a gateway to take a fact."""
WRONG, NOT_FOUND = 400, 404


class Facts:
    """The way to one gateway. A fact that waits is a file of its own below `folder`, written whole.

    Each signal has an id, so one that is sent twice counts once.
    """

    def __init__(self, client: GatewayClient, url: str, folder: Path, *, has_key: bool) -> None:
        self._client, self._url, self._folder, self._has_key = client, url, folder, has_key
        self._said = False
        self.notices: list[str] = []
        """The sentences for the person: facts that the gateway refused, or that wait."""

    async def post(self, signal: Signal, *, known: bool) -> None:
        """Send a fact, or keep it. `known` says whether the gateway has heard of the session."""
        why = "" if self._has_key else "there is no key"
        try:
            if not why:
                await asyncio.wait_for(self._client.signal(signal), FAREWELL_S)
                return
        except (TimeoutError, GatewayUnavailable):
            why = "it does not answer"
        except GatewayRefused as error:
            if error.status != NOT_FOUND or known:  # the only turn was broken off: it never heard of it
                self._say(f"the gateway does not take what became of this session: {error}")
            return
        self._keep(signal)
        self._say(
            f"the gateway at {self._url} does not know yet what became of this session ({why}): that is "
            "kept, and sent when `ostinato code` next reaches it"
        )

    async def post_kept(self) -> None:
        """Send what waits for this gateway; what it does not take now waits on."""
        for path in sorted(self._folder.glob("*.json")):
            kept = json.loads(path.read_bytes())
            if kept["url"] != self._url:
                continue
            try:
                await asyncio.wait_for(self._client.signal(from_json(Signal, kept["signal"])), FAREWELL_S)
            except (TimeoutError, GatewayUnavailable):
                return
            except GatewayRefused as error:
                if error.status not in (WRONG, NOT_FOUND):
                    return  # another key may be the right one
                self._say(f"the gateway does not take what became of an earlier session: {error}")
            path.unlink(missing_ok=True)

    def _keep(self, signal: Signal) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = hashlib.sha256(f"{self._url} {signal.id}".encode()).hexdigest()
        part = self._folder / f"{name}.{os.getpid()}"
        part.write_text(json.dumps({"url": self._url, "signal": to_json(signal)}))
        with suppress(FileExistsError):  # the first one of an id counts, as in the record
            (self._folder / f"{name}.json").hardlink_to(part)
        part.unlink()

    def _say(self, notice: str) -> None:
        if not self._said:
            self.notices.append(notice)
        self._said = True
