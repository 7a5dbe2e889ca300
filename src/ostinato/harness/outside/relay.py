"""The program in the sandbox: it starts the harness, and carries its model calls out through a socket.

    harness ──TCP, 127.0.0.1──► relay ──Unix socket, mounted──► `door` ──► gateway

It is sent to the sandbox as text and knows nothing but the standard library. Its only argument is JSON with
`socket`, `port`, `home`, `command`, `environment` and `files`; its exit status is the harness's.
"""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()


async def _main(order: dict) -> int:  # type: ignore[type-arg] # as JSON has it
    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A connection that is open when the harness ends is cut; a stream would print that among its words.
        with contextlib.suppress(asyncio.CancelledError):
            far_reader, far_writer = await asyncio.open_unix_connection(order["socket"])
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
            writer.close()
            far_writer.close()

    server = await asyncio.start_server(carry, "127.0.0.1", order["port"])
    async with server:
        environment = {**os.environ, "HOME": order["home"], "TERM": "dumb", **order["environment"]}
        harness = await asyncio.create_subprocess_exec(
            *order["command"], env=environment, stdin=asyncio.subprocess.DEVNULL
        )
        return await harness.wait()


def _write_files(home: Path, files: dict[str, str]) -> None:
    home.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    the_order = json.loads(sys.argv[1])
    _write_files(Path(the_order["home"]), the_order["files"])
    sys.exit(asyncio.run(_main(the_order)))
