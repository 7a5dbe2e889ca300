"""vLLM as the peer of a benchmark: its process, and the CPU time of the process and its descendants."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

HOME = Path(__file__).parents[1] / ".clients" / "vllm"
"""The place where `make test-vllm` installs vLLM, and reports whether that worked."""
PYTHON = HOME / "bin" / "python"
TICKS = os.sysconf("SC_CLK_TCK")


def missing() -> str | None:
    """Return the reason why vLLM cannot be used, None when it can."""
    report = HOME / "installed.json"
    if not report.exists():
        return "vLLM is not installed: run `make test-vllm`"
    problem: str | None = json.loads(report.read_text())["problem"]
    return problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A running process that samples, such as `vllm_worker.py`: a line of JSON in, one out."""

    process: subprocess.Popen[str]
    requests: IO[str]
    results: IO[str]

    def sample(self, prompts: list[list[int]], tokens: int) -> tuple[int, float, float]:
        """Return the number of tokens sampled, wall seconds and CPU seconds."""
        before = self._cpu_s()
        self.requests.write(json.dumps({"prompts": prompts, "tokens": tokens}) + "\n")
        self.requests.flush()
        line = self.results.readline()
        if not line:
            raise RuntimeError(f"the sampling process ended with {self.process.wait()}")
        answer = json.loads(line)
        return answer["tokens"], answer["wall_s"], self._cpu_s() - before

    def _cpu_s(self) -> float:
        """Return user and system time of the process and its living descendants."""
        stats = {
            pid: fields
            for path in Path("/proc").glob("[0-9]*")
            if (fields := _stat(path))
            for pid in [int(path.name)]
        }
        family = {self.process.pid}
        while more := {pid for pid, fields in stats.items() if int(fields[1]) in family} - family:
            family |= more
        return sum(int(stats[pid][11]) + int(stats[pid][12]) for pid in family & stats.keys()) / TICKS


def _stat(process: Path) -> list[str]:
    """Return the fields after the name; none for a process that has just ended."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


@contextmanager
def vllm(model: Path, max_len: int, slots: int, *, eager: bool = False) -> Iterator[Worker]:
    """Start vLLM on a checkpoint; it responds to the first request once it is ready."""
    own = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}
    script = str(Path(__file__).with_name("vllm_worker.py"))
    command = [str(PYTHON), script, str(model), str(max_len), str(slots), *(["eager"] if eager else [])]
    with worker(command, own) as started:
        yield started


@contextmanager
def worker(command: list[str], own: dict[str, str]) -> Iterator[Worker]:
    """Start a process that samples; it may use every core."""
    inherited = {
        name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "OMP_NUM_THREADS"}
    }
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=inherited | own) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Worker(process=process, requests=process.stdin, results=process.stdout)
        process.stdin.close()
