"""A headless Chromium, driven by the DevTools protocol over a WebSocket: for tests, benchmarks and pictures.

It keeps what a page complains about: errors on the console, exceptions, and requests that failed.
"""

import asyncio
import base64
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_S = 60.0
LARGEST_MESSAGE = 64 * 2**20


def executable() -> str | None:
    """Return the path of a Chromium on this machine, None when there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class BrowserError(Exception):
    """The browser did not start, or refused a command."""


class Tab:
    """One tab of the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.complaints: list[str] = []
        """What the pages said since this list was cleared: errors, exceptions, failed requests."""
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session = ""
        self._loaded = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def open(self) -> None:
        """Create the tab's target and subscribe to what happens in it."""
        target = await self.command("Target.createTarget", url="about:blank")
        attached = await self.command("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.command(f"{domain}.enable")

    async def close(self) -> None:
        self._reader.cancel()
        with suppress(asyncio.CancelledError):
            await self._reader

    async def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and return its result. Raises BrowserError."""
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        await self._socket.send_json(message | ({"sessionId": self._session} if self._session else {}))
        reply = await asyncio.wait_for(answer, PATIENCE_S)
        if "error" in reply:
            raise BrowserError(f"{method}: {reply['error']['message']}")
        result: dict[str, Any] = reply["result"]
        return result

    async def go(self, address: str) -> None:
        """Load a page and wait until all it needs has come."""
        self._loaded.clear()
        await self.command("Page.navigate", url=address)
        await asyncio.wait_for(self._loaded.wait(), PATIENCE_S)

    async def clicked_away(self, script: str) -> None:
        """Run a script that leads to another page, and wait for that page."""
        self._loaded.clear()
        await self.evaluate(script)
        await asyncio.wait_for(self._loaded.wait(), PATIENCE_S)

    async def evaluate(self, script: str) -> Any:
        """Return the value of an expression, awaited, as JSON. Raises BrowserError for an exception."""
        done = await self.command(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in done:
            raise BrowserError(str(done["exceptionDetails"])[:500])
        return done["result"].get("value")

    async def look(self, width: int, *, dark: bool = False) -> None:
        """Set the width of the window, in CSS pixels, and the colours that the reader prefers."""
        await self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        preferred = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.command("Emulation.setEmulatedMedia", features=preferred)

    async def picture(self, *, most_height: int = 6_000, scale: float = 1.0) -> bytes:
        """Return the whole page as PNG, cut at `most_height` CSS pixels."""
        metrics = await self.command("Page.getLayoutMetrics")
        size = metrics["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], most_height)}
        shot = await self.command(
            "Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip | {"scale": scale}
        )
        return base64.b64decode(shot["data"])

    async def _read(self) -> None:
        async for message in self._socket:
            event = message.json()
            if "id" in event:
                self._waiting.pop(event["id"]).set_result(event)
            else:
                self._hear(event["method"], event["params"])

    def _hear(self, method: str, told: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(f"exception: {str(told['exceptionDetails'])[:300]}")
        elif method == "Log.entryAdded" and told["entry"]["level"] in {"error", "warning"}:
            self.complaints.append(f"log: {told['entry']['text']} {told['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and told["type"] in {"error", "warning", "assert"}:
            self.complaints.append(f"console: {str(told['args'])[:300]}")
        elif method == "Network.responseReceived" and told["response"]["status"] >= 400:
            self.complaints.append(f"{told['response']['status']}: {told['response']['url']}")
        elif method == "Network.loadingFailed" and not told.get("canceled"):
            self.complaints.append(f"failed: {told['errorText']}")


@asynccontextmanager
async def browser(path: str) -> AsyncIterator[Tab]:
    """Run the Chromium at `path` with an empty profile, and yield a tab of it."""
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        options = [
            "--headless=new",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "--no-first-run",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--hide-scrollbars",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
        ]
        quiet = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(path, *options, stdout=quiet, stderr=quiet)
        try:
            address = await _address(Path(profile) / "DevToolsActivePort", process)
            async with (
                aiohttp.ClientSession() as client,
                client.ws_connect(address, max_msg_size=LARGEST_MESSAGE) as socket,
            ):
                tab = Tab(socket)
                await tab.open()
                try:
                    yield tab
                finally:
                    await tab.close()
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def _address(file: Path, process: asyncio.subprocess.Process) -> str:
    """Return the WebSocket that the browser listens on, once it has written it down."""
    for _ in range(int(PATIENCE_S / 0.05)):
        if process.returncode is not None:
            raise BrowserError(f"the browser ended with status {process.returncode}")
        if len(lines := await asyncio.to_thread(_words, file)) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        await asyncio.sleep(0.05)
    raise BrowserError(f"the browser wrote no address within {PATIENCE_S:.0f} s")


def _words(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []
