"""An agent over two descriptors without a sandbox around it, as in a virtual machine.

Covers sandbox/guest/agent.py, sandbox/guest/jobs.py, sandbox/linux/processes.py and
sandbox/protocol/agent_link.py. The rest of sandbox/guest/vm_main.py runs in tests/sandbox/test_machines.py,
and sandbox/guest/proxy_forwarder.py in tests/sandbox/egress/test_frame_transport.py.
"""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.sandbox.test_conformance import HEADLESS

from ostinato.sandbox import Spec
from ostinato.sandbox.backends.agent_sandbox import AgentSandbox
from ostinato.sandbox.protocol import frames
from ostinato.sandbox.protocol.connection import AgentConnection

AGENT = """
import os, sys
from ostinato.sandbox.linux import processes, syscalls
from ostinato.sandbox.guest.agent import SandboxAgent
from ostinato.sandbox.base import Limits
from ostinato.sandbox.protocol.agent_link import AgentLink
from ostinato.sandbox.files.workspace import DirectoryWorkspace

syscalls.adopt_orphans()
link = AgentLink(os.dup(0), os.dup(1), "one")
place = DirectoryWorkspace(os.path.realpath(sys.argv[1]))
SandboxAgent(link, place, Limits(wall_s=5), oom=processes.open_oom("/proc")).serve()
"""


@pytest.fixture
async def wire(repo: Path) -> AsyncIterator[AgentConnection]:
    command = [sys.executable, "-c", AGENT, str(repo)]
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs)
    loop = asyncio.get_running_loop()
    _, wire = await loop.create_unix_connection(lambda: AgentConnection("one", seek=True), sock=ours)
    await wire.wait_until_ready(20)
    yield wire
    await wire.close("the test is over")
    await asyncio.to_thread(process.wait)


async def test_it_serves_the_requests_of_every_agent(wire: AgentConnection, repo: Path) -> None:
    sandbox = AgentSandbox(wire, Spec(repo=repo), str(repo))
    assert (await sandbox.exec("cat sub/note.txt; rm calc.py; sleep 100 &")).output == "hello\n"
    await sandbox.write("new", b"1")
    assert await sandbox.changes() == {"calc.py": None, "new": b"1"}
    counter = await sandbox.start("i=0; while :; do i=$((i+1)); echo $i > count; done")
    while not (repo / "count").exists():
        await asyncio.sleep(0.01)
    await sandbox.pause()
    one = (repo / "count").read_text()
    await asyncio.sleep(0.1)
    assert (repo / "count").read_text() == one
    await sandbox.resume()
    await counter.signal(9)
    assert (await counter.wait()).exit_code == -9
    assert (await sandbox.usage()).processes == 1


async def test_a_process_whose_first_thread_has_ended_is_stopped_too(
    wire: AgentConnection, repo: Path
) -> None:
    (repo / "headless.py").write_text(HEADLESS)
    sandbox = AgentSandbox(wire, Spec(repo=repo), str(repo))
    process = await sandbox.start("python3 headless.py")
    counted = repo / "count"
    for _ in range(2):
        while not counted.exists():
            await asyncio.sleep(0.01)
        await sandbox.pause()
        before = counted.stat().st_size
        await asyncio.sleep(0.1)
        assert counted.stat().st_size == before
        await sandbox.resume()
        counted.unlink()
    await process.signal(9)


async def test_a_request_of_an_older_generation_has_no_response(wire: AgentConnection) -> None:
    """A restored guest gets `hello`; earlier frames belong to the sandbox it was saved from."""
    old = wire.send_request({"op": "read", "path": "calc.py"}, within_s=30)
    await wire.hello("two", 5)
    assert not old.response.done()
    wire._generation = "one"
    stale = wire.send_request({"op": "files"}, within_s=30)
    wire._generation = "two"
    _, names = await wire.request({"op": "files"}, within_s=5)
    assert "calc.py" in frames.unpack_names(names)
    assert not stale.response.done()
