"""The vLLM side of a benchmark: its process, and the CPU time of all it started."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.vllm.install import PYTHON

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vllm:
    """A running `vllm_peer.py`."""

    process: subprocess.Popen[str]
    asked: IO[str]
    answers: IO[str]

    def sample(self, prompts: list[list[int]], tokens: int) -> tuple[int, float, float]:
        """Tokens sampled, seconds by the clock, CPU seconds."""
        before = self._cpu_s()
        self.asked.write(json.dumps({"prompts": prompts, "tokens": tokens}) + "\n")
        self.asked.flush()
        line = self.answers.readline()
        if not line:
            raise RuntimeError(f"vLLM ended with {self.process.wait()}")
        answer = json.loads(line)
        return answer["tokens"], answer["wall_s"], self._cpu_s() - before

    def _cpu_s(self) -> float:
        """User and system time of the process and all its descendants that live."""
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
    """The fields after the name; none when it has just ended."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


@contextmanager
def vllm(model: Path, max_len: int, slots: int) -> Iterator[Vllm]:
    """Start it on a checkpoint; it answers the first question once it is ready."""
    own = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}
    kept = {
        name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "OMP_NUM_THREADS"}
    }
    command = [
        str(PYTHON),
        str(Path(__file__).with_name("vllm_peer.py")),
        str(model),
        str(max_len),
        str(slots),
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=kept | own) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Vllm(process=process, asked=process.stdin, answers=process.stdout)
        process.stdin.close()
