"""The processes of the gateway benchmark: the upstream, the gateway and LiteLLM's proxy, one worker each."""

import json
import os
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ostinato.gateway.access.keys import hash_key
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Store
from ostinato.types import Arm

LITELLM = "litellm[proxy]==1.106.2"
ROOT = Path(__file__).parents[1]
HOME = ROOT / ".clients" / "litellm"
KEY = "sk-benchmark"
RESPONSE_TOKENS = 32
"""The number of tokens of every response."""
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A server process at a port of this machine."""

    process: subprocess.Popen[str]
    port: int

    def cpu_s(self) -> float:
        """Return user and system time since its start, threads included."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def rss_mb(self) -> float:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE_MB


def install() -> Path:
    """Return LiteLLM's command, installed in an environment of its own that is kept between runs."""
    stamp = HOME / "benchmark.stamp"
    if not stamp.exists() or stamp.read_text() != LITELLM:
        print(f"installing {LITELLM} …", file=sys.stderr, flush=True)
        venv.create(HOME, with_pip=True, symlinks=True)
        subprocess.run([str(HOME / "bin" / "pip"), "install", "--quiet", LITELLM], check=True)
        stamp.write_text(LITELLM)
    return HOME / "bin" / "litellm"


def checkpoint(directory: Path) -> list[tuple[int, str]]:
    """Save a tokenizer trained on these sources; return ids and texts of a response, stop token last."""
    corpus = [path.read_text() for path in sorted((ROOT / "src").rglob("*.py"))]
    tokenizer = Tokenizer.train(corpus, 8_000)
    tokenizer.save(directory)
    stop = tokenizer.id_of("<|im_end|>")
    assert stop is not None
    words = tokenizer.encode("def answer(question):\n    return question\n" * 9)[: RESPONSE_TOKENS - 1]
    return [*((id_, tokenizer.decode([id_])) for id_ in words), (stop, "")]


@contextmanager
def started(
    command: list[str], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, **(environment or {})}
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def announced(process: subprocess.Popen[str]) -> Peer:
    """Wait for the line that a server prints once it listens."""
    assert process.stdout is not None
    return Peer(process=process, port=json.loads(process.stdout.readline())["port"])


@contextmanager
def upstream(tokens: Sequence[tuple[int, str]]) -> Iterator[Peer]:
    with started([sys.executable, "-m", "benchmarks.gateway_upstream", json.dumps(tokens)]) as process:
        yield announced(process)


@contextmanager
def ostinato(store: Path, tokenizer: Path, engine: Peer) -> Iterator[Peer]:
    """Start the gateway, which records every turn in `store`."""
    record = Store.open(store)
    record.add_key(hash_key(KEY), "ada")
    record.set_arms([Arm(name="main", version=1, share=1.0, engines=(f"http://127.0.0.1:{engine.port}",))])
    record.close()
    words = ["--store", str(store), "--checkpoint", str(tokenizer)]
    with started([sys.executable, "-m", "ostinato.gateway.server", *words]) as process:
        yield announced(process)


@contextmanager
def litellm(directory: Path, engine: Peer) -> Iterator[Peer]:
    """Start LiteLLM's proxy without a database, in its documented setup for speed; it records nothing."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    model = {"model": "openai/ostinato", "api_base": f"http://127.0.0.1:{engine.port}/v1", "api_key": "none"}
    config = {
        "model_list": [{"model_name": "ostinato", "litellm_params": model}],
        "litellm_settings": {"telemetry": False},
        "general_settings": {"master_key": KEY},
    }
    path = directory / "litellm.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    quiet = {"LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    command = [str(install()), "--config", str(path), "--host", "127.0.0.1", "--port", str(port)]
    with started([*command, "--num_workers", "1", "--telemetry", "False"], quiet) as process:
        yield Peer(process=process, port=port)
