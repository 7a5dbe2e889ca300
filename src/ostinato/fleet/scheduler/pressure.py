"""The load of this machine, as the kernel reports it: CPU, memory, disk, and PSI where the kernel has it."""

import os
import shutil
import sys
from pathlib import Path

from ostinato.fleet.scheduler.types import Pressure, Size

PSI = ("cpu", "memory", "io")
MB = 2**20


class Gauge:
    """A reader of the load; the CPU's share is the one since the last reading."""

    def __init__(self, disk: Path, *, spare_mb: int = 256, proc: Path = Path("/proc")) -> None:
        """`disk` is where sandboxes write, `spare_mb` the memory and disk that are never reserved."""
        self._disk, self._spare_mb, self._proc = disk, spare_mb, proc
        self._cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        self._before = self._ticks()

    def capacity(self) -> Size:
        """Return the resources for sandboxes: all cores, memory and disk but for `spare_mb`."""
        return Size(
            self._cores * 1000,
            max(0, self._memory_mb()[0] - self._spare_mb),
            max(0, shutil.disk_usage(self._disk).total // MB - self._spare_mb),
        )

    def read(self) -> Pressure:
        total, free = self._memory_mb()
        disk = shutil.disk_usage(self._disk)
        return Pressure(
            cpu=self._cpu(),
            memory=1 - free / total,
            disk=1 - disk.free / disk.total,
            stalls=self._stalls(),
        )

    def _cpu(self) -> float:
        """Return the busy share of all cores since the last reading (proc(5): idle, iowait are not busy)."""
        before, self._before = self._before, self._ticks()
        idle, total = (now - then for now, then in zip(self._before, before, strict=True))
        return min(max(1 - idle / total, 0.0), 1.0) if total > 0 else 0.0

    def _ticks(self) -> tuple[int, int]:
        fields = self._lines("stat")[0].split()[1:9]
        ticks = [int(field) for field in fields]
        return ticks[3] + ticks[4], sum(ticks)

    def _memory_mb(self) -> tuple[int, int]:
        """Return the total, and the memory that is available without swapping."""
        rows = dict(line.split(":", 1) for line in self._lines("meminfo"))
        return tuple(int(rows[name].split()[0]) // 1024 for name in ("MemTotal", "MemAvailable"))  # type: ignore[return-value]

    def _stalls(self) -> tuple[float, ...]:
        """Return `some avg10` of each kind as a share; empty where the kernel runs without PSI."""
        shares = []
        for kind in PSI:
            try:
                line = self._lines(f"pressure/{kind}")[0]
            except OSError:
                return ()
            shares.append(float(line.partition("avg10=")[2].split()[0]) / 100)
        return tuple(shares)

    def _lines(self, name: str) -> list[str]:
        return (self._proc / name).read_text().splitlines()
