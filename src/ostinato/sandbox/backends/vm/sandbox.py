"""A sandbox with a kernel of its own: its machine can be saved, copied and stopped."""

import asyncio
import dataclasses
import os
import shutil
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from ostinato.sandbox.backends.agent_sandbox import AgentProcess, AgentSandbox
from ostinato.sandbox.backends.vm.machine import VirtualMachine, VmEngine
from ostinato.sandbox.base import Sandbox, SandboxError, Snapshot, SnapshotKind, Spec, Usage
from ostinato.sandbox.egress.route import Route
from ostinato.sandbox.files import rootfs
from ostinato.sandbox.files.layer import MAX_RECORD
from ostinato.sandbox.files.snapshots import LAYER, SnapshotStore
from ostinato.sandbox.protocol import frames
from ostinato.sandbox.protocol.connection import AgentConnection

BASE = "base"
_MORE = 64 * 2**20
"""The bytes that a layer may have beside twice what may be written: for names, modes, and deletions."""


class VmHost(Protocol):
    """The part of a backend that such a sandbox needs."""

    engine: VmEngine
    snapshot_store: SnapshotStore

    async def place(self) -> Path:
        """Return a fresh directory that is removed with the backend."""
        ...

    async def clone(self, place: Path, spec: Spec, count: int) -> list[Sandbox]:
        """Return `count` copies of the machine saved in `place`; an error leaves none of them."""
        ...

    def forget(self, sandbox: "VmSandbox") -> None: ...


class VmSandbox(AgentSandbox):
    """One sandbox, which is one virtual machine."""

    def __init__(
        self,
        machine: VirtualMachine,
        connection: AgentConnection,
        spec: Spec,
        route: Route | None,
        *,
        identity: str,
        backend: VmHost,
    ) -> None:
        super().__init__(connection, spec, rootfs.REPO, route)
        self.id = identity
        self._machine = machine
        self._backend = backend
        self._lock = asyncio.Lock()

    async def pause(self) -> None:
        async with self._lock:
            if not self._paused:
                await super().pause()
                await self._settle()
                await self._machine.pause()

    async def resume(self) -> None:
        async with self._lock:
            if self._paused:
                await self._machine.resume()
                self._connection.release()
                if self._backend.engine.own_clock:
                    await self._connection.request(
                        {"op": "clock", "now": time.time()}, within_s=self._within_s
                    )
                await super().resume()

    async def _settle(self) -> None:
        """Wait until the guest has read all frames; frames from now on are held back."""
        pending = self._connection.send_request({"op": "quiet"}, within_s=self._within_s)
        self._connection.hold()
        await self._connection.response(pending)

    @asynccontextmanager
    async def _still(self) -> AsyncIterator[None]:
        """Keep the channel without frames for the time of the context, so that the machine can be saved."""
        async with self._lock:
            if self._paused:
                yield
                return
            try:
                await self._settle()
                self._connection.pause()
                yield
            finally:
                self._connection.resume()
                self._connection.release()

    async def save(self) -> Path:
        """Save the machine in a directory of the backend, which is returned."""
        place = await self._backend.place()
        try:
            async with self._still():
                await self._machine.save(place)
        except BaseException:
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
            raise
        return place

    async def apply(self, changes: Mapping[str, bytes | None]) -> None:
        """Write or, for None, delete each path; raises SandboxPathError."""
        await self._ask("apply", frames.pack_files(changes))

    async def work(self, calls: socket.socket, variation: int) -> None:
        """Run an exam's worker on `calls`, the socket of a judge, until either hangs up."""
        request = {"op": "worker", "variation": variation, "stdin": True}
        worker = AgentProcess(self._connection, request, within_s=self._within_s, keep=0)
        await between(calls, worker)

    async def fork(self, n: int = 1) -> list[Sandbox]:
        place = await self.save()
        try:
            return await self._backend.clone(place, self._spec, n)
        finally:
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)

    async def snapshot(self, kind: SnapshotKind = SnapshotKind.FILESYSTEM) -> Snapshot:
        shelf = self._backend.snapshot_store
        place = await asyncio.to_thread(shelf.begin)
        try:
            if kind is SnapshotKind.FULL:
                async with self._still():
                    await self._machine.save(place)
                (place / BASE).write_text(await self._backend.engine.base())
            else:
                await self._write_layer(place / LAYER)
            return await asyncio.to_thread(shelf.finish, place, kind, self._spec.repo)
        except BaseException as error:
            await asyncio.to_thread(shelf.drop, place)
            if isinstance(error, OSError):
                raise SandboxError(f"the snapshot at {place} could not be written: {error}") from error
            raise

    async def _write_layer(self, path: Path) -> None:
        file, failed = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), list[OSError]()
        most = 2 * (self._limits.disk_mb << 20) + _MORE
        size = 0

        def write(_: Mapping[str, Any], body: bytes) -> None:
            nonlocal size
            size += len(body)
            if size > most:
                raise frames.FrameError(f"a layer of more than {most} bytes: files with holes count whole")
            try:
                frames.write_all(file, body)
            except OSError as error:
                failed.append(error)

        try:
            async with self._awake():
                await self._connection.request_events(
                    {"op": "pack"}, write, within_s=self._within_s, max_event=MAX_RECORD + frames.CHUNK
                )
        finally:
            os.close(file)
        if failed:
            raise failed[0]

    @asynccontextmanager
    async def _awake(self) -> AsyncIterator[None]:
        """Let the machine run for the time of the context, but no process in it besides the agent."""
        if not self._paused:
            await self._connection.request({"op": "pause"}, within_s=self._within_s)
            try:
                yield
            finally:
                await self._connection.request({"op": "resume"}, within_s=self._within_s)
            return
        async with self._lock:
            await self._machine.resume()
            self._connection.release()
            try:
                yield
            finally:
                await self._settle()
                await self._machine.pause()

    async def usage(self) -> Usage:
        cpu_s, memory = await self._machine.usage()  # before the request, which itself takes some
        if self._paused:
            async with self._awake():
                inside = await super().usage()
        else:
            inside = await super().usage()
        return dataclasses.replace(inside, cpu_s=cpu_s, memory_bytes=memory)

    async def destroy(self) -> None:
        self._backend.forget(self)
        await super().destroy()
        await self._machine.end()


async def between(calls: socket.socket, worker: AgentProcess) -> None:
    """Copy data between a judge, at the other end of `calls`, and the worker, until either ends.

    Neither is further ahead of the other than a command of its reader: data that the judge has not read yet
    waits in the worker's guest.
    """
    reader, writer = await asyncio.open_connection(sock=calls)

    async def copy_output() -> None:
        async for data in worker.output():
            writer.write(data)
            await writer.drain()

    async def copy_input() -> None:
        while data := await reader.read(frames.CHUNK):
            await worker.send(data)

    directions = [asyncio.create_task(copy_output()), asyncio.create_task(copy_input())]
    try:
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for direction in directions:
            direction.cancel()
        await asyncio.gather(*directions, return_exceptions=True)
        writer.close()
