"""`ostinato bench` from the outside."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from fuzz.endpoint import Model, asked_for, endpoint, solves

from ostinato.bench import endpoint as endpoint_side
from ostinato.cli import main
from ostinato.tasks.pebble import generate, provide


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    for seed in range(2):
        pebble = generate("fix", "seeds", seed)
        provide(pebble, tmp_path / "suite" / pebble.id)
    return tmp_path / "suite"


def serving(model: Model, work: Callable[[str], int]) -> int:
    """Do `work` with the address of an endpoint that another thread serves."""
    ready, over, found = threading.Event(), asyncio.Event(), list[str]()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with endpoint(model) as url:
            found.append(url)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(30)
        return work(found[0])
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def test_two_models_behind_urls_are_compared(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "seal", str(suite), "--name", "small", "--json"]) == 0
    sealed = json.loads(capsys.readouterr().out)
    assert (sealed["name"], sealed["version"], sealed["tasks"]) == ("small", 1, 2)
    pebbles = {pebble.instruction: pebble for pebble in (generate("fix", "seeds", seed) for seed in range(2))}
    out = tmp_path / "out"

    def work(url: str) -> int:
        sides = ["--url", f"m@{url}", "--url", f"other@{url}", "--sandbox", "process", "--out", str(out)]
        store = ["--store", str(tmp_path / "bench.db"), "--passes", "1", "--json"]
        return main(["bench", "run", str(suite), *sides, *store])

    assert serving(lambda _, messages: solves(asked_for(pebbles, messages), messages), work) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [side["solve"]["value"] for side in printed["sides"]] == [1.0, 1.0]
    assert printed["hash"] == sealed["hash"]
    assert json.loads((out / "report.json").read_text()) == printed
    assert (out / "report.html").read_text().startswith("<!doctype html>") and (out / "plot.png").exists()


def test_an_endpoint_that_is_down_leaves_no_figure(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "seal", str(suite)]) == 0

    def work(url: str) -> int:
        command = ["bench", "run", str(suite), "--url", f"m@{url}", "--sandbox", "process", "--passes", "1"]
        return main([*command, "--store", str(tmp_path / "bench.db"), "--json"])

    assert serving(lambda *_: {"tool_calls": 7}, work) == 1
    printed = capsys.readouterr()
    assert "2 of 2 passes stayed void" in printed.err
    assert json.loads(printed.out.splitlines()[-1])["sides"][0]["solve"] is None


@pytest.fixture
def refusing() -> Iterator[str]:
    """The address of a server that refuses every chat."""

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say(200, b"{}")

        def do_POST(self) -> None:
            self._say(403, b'{"error": {"message": "bench sessions need a key with the role admin"}}')

        def _say(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def test_an_endpoint_that_is_not_there_or_refuses_ends_the_run_at_once(
    suite: Path,
    refusing: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(endpoint_side, "ANSWERS_S", 0.2)
    assert main(["bench", "seal", str(suite)]) == 0
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        dead = (f"http://127.0.0.1:{each.getsockname()[1]}/v1" for each in (bound, silent))
        for url, reason in zip(
            (*dead, refusing), ("nothing answers at", "no answer", "role admin"), strict=True
        ):
            command = ["bench", "run", str(suite), "--url", f"m@{url}", "--sandbox", "process"]
            assert main([*command, "--store", str(tmp_path / "bench.db")]) == 2
            printed = capsys.readouterr().err
            assert reason in printed and url in printed and "Traceback" not in printed and "%" not in printed


def test_wrong_requests_are_refused(suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "run", str(suite)]) == 2
    assert main(["bench", "run", str(suite), "--url", "no-model"]) == 2
    assert main(["bench", "run", str(suite), "--url", "m@http://x", "--passes", "0"]) == 2
    assert main(["bench", "run", str(suite), "--url", "m@http://x"]) == 2
    assert "ostinato bench seal" in capsys.readouterr().err
    assert main(["bench", "seal", str(suite)]) == 0
    none = tmp_path / "none"
    assert main(["bench", "run", str(suite), "--versions", "1", "--directory", str(none)]) == 2
    assert "holds no run" in capsys.readouterr().err
