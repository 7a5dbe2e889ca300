"""Covers dashboard/server.py and loop/dashboard/commands.py: the command, as a person starts it."""

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from ostinato import cli

COMMAND = [sys.executable, "-m", "ostinato", "dashboard"]


def test_it_prints_an_address_that_lets_in_and_ends_cleanly(filled: Path, checkpoint: Path) -> None:
    arguments = ["--store", str(filled), "--checkpoint", str(checkpoint), "--port", "0", "--json"]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["address"]
            assert address.startswith("http://127.0.0.1:")
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with opener.open(address) as page:
                assert page.status == 200
            with opener.open(address.partition("/enter")[0] + "/sessions") as page:
                assert b"told/1" in page.read()
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) in {0, 130}
        finally:
            process.kill()


def test_a_store_that_is_not_there_is_named(capsys, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert cli.main(["dashboard", "--store", str(tmp_path / "none.db")]) == 2
    assert "none.db is no record" in capsys.readouterr().err
