"""The real vLLM server as a process of its own.

The abilities of a version of vLLM are queried, not assumed: the routes it lists, the options it knows.
"""

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import aiohttp

import ostinato
from ostinato.engine.base import EngineError
from ostinato.engine.machine import gpus
from ostinato.engine.vllm.calls import VllmCalls

MODULE = "vllm.entrypoints.openai.api_server"
WORKER_MODULE = "ostinato.engine.vllm.worker"
WORKER = f"{WORKER_MODULE}.Versions"
SWITCHES: tuple[tuple[str, ...], ...] = (("--enable-scale-out",), ())
"""Newer versions offer tokens in, tokens out only with this option; older ones do not know it."""
WHOLE_PROMPTS = ("--no-enable-chunked-prefill",)
"""The options for a CPU, where vLLM 0.32 dies of the first request with a seed whose prompt it computes in
two parts: it winds the request's generator back, and those of a CPU cannot be wound back."""
TOKENS = "/inference/v1/generate"
ERROR = re.compile(r"(?:^|\) |\] )((?:\w+\.)*\w*(?:Error|Exception): .+)")
"""A line that ends a traceback, in which the name of a process and of a source may come first."""
POLL_S = 0.2
TERM_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The settings of a server.

    `python` is the interpreter of an environment with vLLM, perhaps not our own.
    """

    model: Path
    logs: Path
    python: str = sys.executable
    max_len: int = 512
    slots: int = 64
    dtype: str = "float32"
    tensor_parallel: int = 1
    """the number of workers that share each layer"""
    eager: bool = True
    """without compilation, which takes minutes on a CPU"""
    arguments: tuple[str, ...] = ()
    """further arguments of vLLM's own; they come last, so that they win"""
    environment: Mapping[str, str] | None = None
    patience_s: float = 600.0


class VllmServer(VllmCalls):
    """A running server: `post` and `get` send requests, `close` ends it and all processes it started."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, logs: Path) -> None:
        no_limit = aiohttp.ClientTimeout(total=None, sock_connect=5)
        http = aiohttp.ClientSession(url, timeout=no_limit, connector=aiohttp.TCPConnector(limit=0))
        super().__init__(http, "vLLM, ", f"see its last lines in {logs}, and start the engine again")
        self.process, self.url, self._logs = process, url, logs

    @classmethod
    async def start(cls, launch: Launch) -> Self:
        """Start a server and wait until it responds. Raises EngineError with the last lines of its log."""
        for switches in SWITCHES:
            server = await cls._spawn(launch, switches)
            try:
                await asyncio.wait_for(server._listening(), launch.patience_s)
                await server._learn()
                return server
            except (EngineError, TimeoutError) as error:
                await server.close()
                if not switches or "unrecognized arguments" not in server.log():
                    why = f"{error}" or f"no response within {launch.patience_s:.0f} s"
                    raise EngineError(f"vLLM did not start ({why}): {server.cause()}") from error
        raise AssertionError("unreachable: the last start has no switches")

    @classmethod
    async def _spawn(cls, launch: Launch, switches: Sequence[str]) -> Self:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        launch.logs.mkdir(parents=True, exist_ok=True)
        log = launch.logs / "vllm.log"
        command = _command(launch, port, switches)
        try:
            with log.open("wb") as file:
                process = await asyncio.create_subprocess_exec(
                    *command, stdout=file, stderr=file, env=_environment(launch), start_new_session=True
                )
        except OSError as error:
            raise EngineError(f"vLLM did not start: {launch.python}: {error.strerror}") from error
        return cls(process, f"http://127.0.0.1:{port}", log)

    async def _listening(self) -> None:
        while True:
            if self.process.returncode is not None:
                raise EngineError(f"it ended with {self.process.returncode}")
            with contextlib.suppress(aiohttp.ClientError):  # it does not listen yet
                async with self.http.get("/health") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(POLL_S)

    async def _learn(self) -> None:
        """Read the routes of this version. Raises EngineError naming needed routes that it lacks."""
        if missing := await self.lacks():
            raise EngineError(f"this version of vLLM lacks {', '.join(missing)}")

    def log(self) -> str:
        """Return the last lines of the server's output."""
        return self._logs.read_text(errors="replace")[-2000:]

    def cause(self) -> str:
        """Return the first error in the server's output, else its last lines.

        Each of its processes reports that another one failed, so the last error says the least.
        """
        with self._logs.open(errors="replace") as lines:
            first = next(filter(None, map(ERROR.search, lines)), None)
        return first[1] if first else self.log()

    async def close(self) -> None:
        """End the server with everything it started: by SIGTERM first, then by SIGKILL."""
        await self.http.close()
        for how in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, how)
                await asyncio.wait_for(self.process.wait(), TERM_S)
            except (ProcessLookupError, TimeoutError):
                continue


def _command(launch: Launch, port: int, switches: Sequence[str]) -> list[str]:
    return [
        *(launch.python, "-m", MODULE, "--host", "127.0.0.1", "--port", str(port)),
        *("--model", str(launch.model), "--dtype", launch.dtype),
        *("--max-model-len", str(launch.max_len), "--max-num-seqs", str(launch.slots)),
        # Log-probabilities of the distribution that was sampled from: temperature, top_p and all.
        *("--logprobs-mode", "processed_logprobs"),
        *("--tensor-parallel-size", str(launch.tensor_parallel)),
        *(("--enforce-eager",) if launch.eager else ()),
        *(() if gpus() else WHOLE_PROMPTS),
        *("--worker-extension-cls", WORKER, *switches, *launch.arguments),
    ]


def _environment(launch: Launch) -> dict[str, str]:
    """Return our environment, with an import path that holds this package and nothing else of it."""
    import_path = launch.logs / "import"
    import_path.mkdir(exist_ok=True)
    link = import_path / "ostinato"
    if not link.is_symlink():
        link.symlink_to(Path(ostinato.__file__).parent, target_is_directory=True)
    inherited = {
        name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}
    }
    # The routes that pause and update weights are in its development mode; it listens on loopback only.
    own = {"PYTHONPATH": str(import_path), "VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1"}
    return {"VLLM_CPU_KVCACHE_SPACE": "1", **inherited, **own, **(launch.environment or {})}
