"""Covers harness/frontends/terminal/hang_up.py: the end of a terminal that sends no signal."""

import asyncio
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

from ostinato.harness.frontends.terminal.hang_up import hung_up


async def test_a_terminal_that_stays_is_not_gone_and_one_that_closes_is() -> None:
    outer, inner = pty.openpty()
    watching = asyncio.ensure_future(hung_up(inner))
    await asyncio.wait((watching,), timeout=0.2)
    assert not watching.done()
    os.close(outer)
    await asyncio.wait_for(watching, 300)
    os.close(inner)


async def test_the_full_screen_ends_with_its_terminal_though_sighup_is_ignored(tmp_path: Path) -> None:
    subprocess.run(("git", "init", "-q", str(tmp_path)), check=True)
    outer, inner = pty.openpty()

    def in_a_session_of_its_own() -> None:
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    environment = os.environ | {"TERM": "xterm-256color", "OSTINATO_KEY": "k", "HOME": str(tmp_path)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ostinato", "code", "--url", "http://127.0.0.1:9/v1"),
        *("--directory", str(tmp_path)),
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env=environment,
        preexec_fn=in_a_session_of_its_own,
    )
    os.close(inner)
    seen = b""
    while b"What shall I do?" not in seen:
        seen += await asyncio.wait_for(asyncio.to_thread(os.read, outer, 65536), 300)
    os.close(outer)
    assert await asyncio.wait_for(process.wait(), 300) == 0
